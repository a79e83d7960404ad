"""The opcodes, one module per family.

A module in this package is found by scanning; nothing lists it.  It has

* a docstring, which the coverage page shows: what the family covers and what it does not;
* ``ORDER``, its place on that page;
* ``OPCODES``: an `Opcode` for every opcode.  An entry for some forms of an opcode has a longer name
  (``cp.async.bulk.tensor``) and takes precedence over that of the opcode (``cp``).

Code that several families use is in the modules beside this package.
"""
