"""The virtual GPU inside one process: loads the runtime, translates kernels, reports what happened."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from cupilot.arrays import Array
from cupilot.errors import MachineError
from cupilot.gpu.occupancy import occupancy
from cupilot.gpu.spec import GpuSpec
from cupilot.gpu.timing import model_time
from cupilot.places import Runs
from cupilot.records import Finding, Launch, MemoryOperation, Profile, Resources
from cupilot.records.evaluation import SassFunction, SassLine
from cupilot.vgpu import translations
from cupilot.vgpu.aside import aside_counters
from cupilot.vgpu.counters import PLACES, BufferTraffic, Sampled, launch_counters, line_costs, stretch
from cupilot.vgpu.emit import KernelCode
from cupilot.vgpu.emit.program import function_value
from cupilot.vgpu.findings import read_finding
from cupilot.vgpu.host import Host
from cupilot.vgpu.ptx.parse import PtxError
from cupilot.vgpu.ptx.syntax import Module, Variable
from cupilot.vgpu.rare_blocks import RareBlocksOfLaunches
from cupilot.vgpu.sites import site_counts
from cupilot.vgpu.translate import Translator
from cupilot.vgpu.uneven import block_cycles, handover_cycles, read_costs
from cupilot.vgpu.views import (
    ELAPSED,
    LOCATE,
    REGISTERS,
    RESIDENT,
    TRANSLATE,
    DeviceView,
    LaunchView,
    TrafficView,
    declare,
)
from cupilot.vgpu.widths import Width, site_widths, wanted

Triple = tuple[int, int, int]
PAGE_BYTES = 4096
FEW_RUNS = 1 << 12
SPACES = {"shared": 1, "group": 1, "generic": 2, "local": 3}
"""The runtime's numbers of memory spaces (engine.h: Space); what is not here is global."""


class Machine:
    """One virtual GPU; there is one per process, because the runtime it loads is global."""

    def __init__(
        self,
        spec: GpuSpec,
        runtime: Path,
        resources: Mapping[str, Resources],
        device: str,
        sass: Sequence[SassFunction] = (),
    ) -> None:
        """``sass`` says how the machine code makes the PTX's loads and stores; without it counters are the PTX's."""
        self.spec = spec
        self.device = device
        self.resources = dict(resources)
        self.sass = tuple(sass)
        # candidates are linked without a CUDA runtime and find these symbols in the global scope
        self._library = ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
        declare(self._library)
        self._translator = Translator(self._library, translations(runtime))
        self._modules: dict[int, tuple[Module, str]] = {}
        self._codes: dict[int, KernelCode] = {}
        self._widths: dict[int, list[Width | None]] = {}
        self._texts: list[bytes] = []
        # ctypes callbacks must outlive their use
        self._callbacks = (
            TRANSLATE(self._translate), RESIDENT(self._resident), ELAPSED(self._elapsed), LOCATE(self._locate),
            REGISTERS(self._registers),
        )  # fmt: skip
        self._library.vgc_callbacks(*self._callbacks)
        self._rare_blocks = RareBlocksOfLaunches(self._library, self._codes)
        self._library.vgc_device(ctypes.byref(self._device_record()))
        self._library.vgc_handover(round(handover_cycles(self.spec)))

    def share_memory(self) -> int:
        """A descriptor of the memory that kernels and host code in another process share; the caller closes it."""
        descriptor = int(self._library.vgc_share_memory())
        if descriptor < 0:
            raise MachineError("no memory can be shared with the process for host code")
        return descriptor

    def connect_host(self, descriptor: int, process: int, ended: Callable[[], str]) -> None:
        """Host code runs in that process from now on; see `Host`."""
        self.host = Host(self._library, descriptor, process, ended)

    def translate_apart(self, prepare: Callable[[Path], object]) -> None:
        """Have kernels translated by another process; see `Translator.start_process`."""
        self._translator.start_process(prepare)

    def _device_record(self) -> DeviceView:
        s = self.spec
        return DeviceView(
            s.title.encode()[:63], int(s.capability), round(s.capability * 10) % 10, s.sms, int(s.clock_hz / 1e3),
            s.threads_per_block, s.threads_per_sm, s.blocks_per_sm, s.registers_per_sm, s.shared_bytes_per_block,
            s.shared_bytes_per_block_optin, s.shared_bytes_per_sm, s.l1_kept_bytes_per_sm, s.l2_bytes, s.dram_bytes,
            int(s.dram_bytes_per_s),
        )  # fmt: skip

    # --- callbacks from the runtime --------------------------------------------------------

    def _translate(self, image: int, name: bytes, kernel: int) -> int:
        try:
            module, text = self._module(image)
            code, address = self._translator.compile(module, name.decode(), text)
            self._codes[kernel] = code
            self._define(image, kernel, code, address)
        except PtxError as error:
            known = self._modules[image][0] if image in self._modules else Module()
            file = known.file_names(known.functions.values()).get(error.line, "")
            self._library.vgc_kernel_error(kernel, error.text.encode(), error.line, file.encode())
            return 1
        except Exception as error:  # a callback must not raise into C; the text reaches the user as a finding
            self._library.vgc_kernel_error(kernel, f"internal error in the translation: {error}".encode(), 0, b"")
            return 1
        return 0

    def _module(self, image: int) -> tuple[Module, str]:
        if image not in self._modules:
            data = ctypes.c_void_p()
            size = self._library.vgc_image(image, ctypes.byref(data))
            text = self._translator.text(ctypes.string_at(data.value or 0, size))
            self._modules[image] = (self._translator.parse(text), text)
        return self._modules[image]

    def _define(self, image: int, kernel: int, code: KernelCode, address: int) -> None:
        module, _ = self._modules[image]
        params = module.functions[code.name].params

        def words(values: list[int]) -> ctypes.Array[ctypes.c_uint32]:
            return (ctypes.c_uint32 * max(len(values), 1))(*values)

        variables = [self._variable(image, module, name) for name in code.variables]
        self._rare_blocks.define(kernel, module.variables, variables)
        instructions = [int(block.counters.get("warp_instructions", 0)) for block in code.blocks]
        widths = self._widths[kernel] = site_widths(code.sites, code.name, self.sass)
        site_words = [
            n
            for s, bits in zip(code.sites, wanted(code.sites, widths), strict=True)
            for n in (s.line, s.bytes, int(s.store), SPACES.get(s.space, 0), int(s.relaxed), bits)
        ]
        if {"vg_call_malloc", "vg_call_free"} & set(code.calls):
            self._library.vgc_kernel_allocates(kernel)
        self._library.vgc_kernel(
            kernel, ctypes.c_void_p(address), code.warp_bytes, code.local_bytes, int(code.takes_turns),
            code.shared_bytes, code.param_bytes, code.max_threads,
            len(params), words([p.offset for p in params]), words([p.bytes for p in params]),
            len(code.blocks), words(instructions), words(code.first_lines),
            len(code.sites), words(site_words),
            len(variables), (ctypes.c_uint64 * max(len(variables), 1))(*variables),
        )  # fmt: skip
        cycles = block_cycles(code, self._machine_code(code.name), self.spec.l2_far_latency_cycles)
        self._library.vgc_kernel_cycles(kernel, words(cycles))
        for file in set(code.files.values()):
            lines = [line for line, name in code.files.items() if name == file]
            self._library.vgc_kernel_file(kernel, file.encode(), len(lines), words(lines))

    def _variable(self, image: int, module: Module, name: str) -> int:
        variable = module.variables[name]
        fresh = ctypes.c_uint32()
        address = int(self._library.vgc_variable(image, name.encode(), variable.bytes, ctypes.byref(fresh)))
        if not address:
            raise PtxError(f"no room for the {variable.bytes} bytes of the variable {name}")
        if fresh.value and variable.initial:
            self._library.vgc_first(address, self._initial(image, module, variable), len(variable.initial))
        return address

    def _initial(self, image: int, module: Module, variable: Variable) -> bytes:
        """A variable's first content, with the addresses of other variables and functions in place."""
        data = bytearray(variable.initial)
        for place in variable.relocations:
            if place.symbol in module.functions:
                value = function_value(module, place.symbol)
            elif place.symbol in module.variables:
                value = self._variable(image, module, place.symbol) + place.addend
            else:
                raise PtxError(f"the initial value of {variable.name} needs {place.symbol}, which is not there")
            data[place.offset : place.offset + 8] = (value & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")
        return bytes(data)

    def _locate(self, image: int, name: bytes) -> int:
        """Address of a module's variable, with its initial value; 0 when the PTX does not hold it."""
        try:
            module, _ = self._module(image)
            return self._variable(image, module, name.decode()) if name.decode() in module.variables else 0
        except PtxError:  # the module's kernels will say so
            return 0

    def _registers(self, name: bytes) -> int:
        return self.resources_of(name.decode()).registers

    def _resident(self, name: bytes, threads: int, dynamic_shared: int) -> int:
        resources = self.resources_of(name.decode())
        return occupancy(self.spec, threads, resources, dynamic_shared).blocks_per_sm

    def _elapsed(self, first: int, end: int, first_operation: int, end_operation: int) -> float:
        launches = tuple(self.launch(i) for i in range(first, end))
        operations = tuple(self._operation(i) for i in range(first_operation, end_operation))
        return model_time(Profile(self.device, launches, operations), self.spec, self.device).time_s

    def _machine_code(self, kernel: str) -> list[SassLine]:
        return [line for function in self.sass if function.name == kernel for line in function.lines]

    def resources_of(self, kernel: str) -> Resources:
        return self.resources.get(kernel, Resources(registers=32))

    # --- calls -----------------------------------------------------------------------------

    def begin(
        self, sample_budget: int | None, seconds_left: float, threads: int = 1, order: int = 0, sample_seed: int = 0
    ) -> None:
        """Forget the last call's launches and findings; what was written until now does not count as stored.

        ``sample_seed`` chooses the blocks that run within the budget.
        ``order`` is the seed of another order of the blocks, and of the warps within a block; 0 is by number.
        """
        self._library.vgc_begin()
        self._library.vgc_host_seconds()  # what was spent before does not count
        self._library.vgc_settings(sample_budget or 0, seconds_left, threads)
        self._library.vgc_order(order)
        self._library.vgc_sample_seed(sample_seed & 0xFFFFFFFFFFFFFFFF)

    def end(self) -> None:
        """The wrapper has returned: work that nothing waits for is a finding, and the candidate may start no more."""
        self._library.vgc_end()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Host code that touches device memory in here ends the process, after a message on standard error."""
        self._library.vgc_guard_host(1)
        try:
            yield
        finally:
            self._library.vgc_guard_host(0)

    def run_program(self, journal: Path, seconds_left: float, checks: bool) -> None:
        """What follows in this process is a whole program: its findings go to a file as they are made."""
        self.begin(None, seconds_left)
        self._library.vgc_checks(int(checks))
        if not self._library.vgc_program(str(journal).encode()):
            raise MachineError(f"the file {journal} cannot be written")

    def load_ptx(self, text: str) -> int:
        """Make a PTX module known; gives the number that `start` wants."""
        data = text.encode() + b"\0"
        self._texts.append(data)
        return int(self._library.vgc_register_ptx(data, len(data)))

    def start(
        self,
        module: int,
        kernel: str,
        grid: Triple,
        block: Triple,
        arguments: Sequence[bytes],
        dynamic_shared: int = 0,
        cooperative: bool = False,
    ) -> int:
        """Launch a kernel of a PTX module; arguments are the bytes of its parameters.  Gives CUDA's error number."""
        buffers = [ctypes.create_string_buffer(argument, len(argument)) for argument in arguments]
        pointers = (ctypes.c_void_p * max(len(buffers), 1))(*(ctypes.addressof(buffer) for buffer in buffers))
        words = ctypes.c_uint32 * 3
        return int(
            self._library.vgc_launch_kernel(
                module,
                kernel.encode(),
                words(*grid),
                words(*block),
                ctypes.c_uint64(dynamic_shared),
                pointers,
                int(cooperative),
            )
        )

    def allocate(self, size: int) -> int:
        """A device buffer that nothing was written to."""
        address = int(self._library.vgc_allocate(size))
        if not address:
            raise MemoryError(f"{size} bytes of device memory")
        return address

    def upload(self, array: Array) -> int:
        """A device buffer with an array's content."""
        address = self.allocate(array.nbytes)
        self.write(address, array)
        return address

    def write(self, address: int, array: Array) -> None:
        """Fill a buffer with an array's content; between calls, because it counts as stored."""
        source = np.ascontiguousarray(array)
        self._library.vgc_upload(address, source.ctypes.data, source.nbytes)

    def map_file(self, path: Path, size: int) -> int:
        """A device buffer with a file's content; pages are read when a kernel touches them.

        Of a file that is shorter than ``size``, pieces are shown (see `cupilot.arrays`); it takes no more memory than
        once until it is written to, and its length must then be a multiple of the page size.
        """
        length = path.stat().st_size
        if length < size and (length < 2 * PAGE_BYTES or length % PAGE_BYTES):
            raise MachineError(f"{path} has {length} bytes, which cannot fill {size}")
        address = int(self._library.vgc_map_file(str(path).encode(), size))
        if not address:
            raise MemoryError(f"{size} bytes of device memory")
        return address

    def stored(self, address: int) -> bool:
        """Whether a kernel, a fill or a copy stored to a buffer since `begin`."""
        return bool(self._library.vgc_stored(address))

    def store_launches(self, address: int) -> int:
        """How many launches stored to a buffer since `begin`."""
        return int(self._library.vgc_store_launches(address))

    def view(self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A buffer as an array, without a copy; valid until the buffer is freed."""
        count = prod(shape)
        if count == 0:
            return np.empty(shape, dtype)
        raw = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
        array: Array = np.ctypeslib.as_array(raw).view(dtype).reshape(shape)
        return array

    def stored_runs(self, address: int, count: int, item: int) -> Runs | None:
        """Flat positions of the elements that were stored to since `begin`; None when that is all of them.

        Those of a file mapped since then count as stored.
        """
        lib, table = self._library, np.empty((FEW_RUNS, 2), np.int64)
        found = int(lib.vgc_stored_runs(address, count, item, len(table), table.ctypes.data))
        if found > len(table):
            table = np.empty((found, 2), np.int64)
            lib.vgc_stored_runs(address, count, item, found, table.ctypes.data)
        runs = Runs(table[:found])
        return None if runs.size == count else runs

    def stored_elements(self, address: int, count: int, item: int) -> Array | None:
        """The same one by one."""
        runs = self.stored_runs(address, count, item)
        return None if runs is None else runs.positions

    def free(self, address: int) -> None:
        self._library.cudaFree(address)

    # --- what happened ---------------------------------------------------------------------

    def findings(self) -> tuple[Finding, ...]:
        return tuple(read_finding(self._library.vgc_finding(i)) for i in range(self._library.vgc_findings()))

    def last_error(self) -> str:
        """The CUDA error that nobody has asked for yet, or nothing."""
        number = self._library.vgc_last_error()
        return f"{self._library.cudaGetErrorString(number).decode()} (error {number})" if number else ""

    def profile(self) -> Profile:
        """Launches, fills and copies since `begin`."""
        if self._rare_blocks.problem is not None:
            raise self._rare_blocks.problem
        launches = tuple(self.launch(i) for i in range(self._library.vgc_launches()))
        operations = tuple(self._operation(i) for i in range(self._library.vgc_operations()))
        sampled = any(launch.blocks_run < launch.blocks for launch in launches)
        return Profile(self.device, launches, operations, sampled, self._library.vgc_host_seconds())

    def _operation(self, index: int) -> MemoryOperation:
        kind = ctypes.c_char_p()
        size = self._library.vgc_operation(index, ctypes.byref(kind))
        return MemoryOperation((kind.value or b"").decode(), size)

    def _extents(self, launch: int, buffer: int) -> list[tuple[int, int, int]]:
        count = int(self._library.vgc_launch_extents(launch, buffer, 0, None))
        out = np.empty((count, 3), np.uint64)
        self._library.vgc_launch_extents(launch, buffer, count, out.ctypes.data)
        return [(int(block), int(first), int(last)) for block, first, last in out]

    def launch(self, index: int) -> Launch:
        view = LaunchView()
        self._library.vgc_launch(index, ctypes.byref(view))
        name = view.kernel.decode()
        code, resources = self._codes[view.id], self.resources_of(name)
        counts = [(view.counts[2 * b], view.counts[2 * b + 1]) for b in range(view.basic_blocks)]
        sites, traffic = site_counts(self._library, index, code.sites, self._widths[view.id]), []
        for number in range(view.allocations):
            moved = TrafficView()
            size = self._library.vgc_launch_traffic(index, number, ctypes.byref(moved))
            sectors = {field[0]: int(getattr(moved, field[0])) for field in TrafficView._fields_}
            together = stretch(self._extents(index, number), size, view.resident * self.spec.sms)
            place = PLACES[self._library.vgc_launch_place(index, number)]
            traffic.append(BufferTraffic(size, **sectors, stretch_bytes=together, place=place))
        grid, block = tuple(view.grid), tuple(view.block)
        blocks = grid[0] * grid[1] * grid[2]
        threads = block[0] * block[1] * block[2]
        ran = Sampled(
            blocks=blocks, scale=view.scale, heaviest=view.heaviest, warps_per_block=-(-threads // 32),
            resident=view.resident, critical=[view.critical[b] for b in range(view.basic_blocks)],
            costs=read_costs(self._library, index), blocks_run=view.blocks_run, chain_cycles=view.chain_cycles,
            chain_hops=view.chain_hops,
        )  # fmt: skip
        counters = launch_counters(
            code, counts, sites, traffic, ran, sms=self.spec.sms, l2_bytes=self.spec.l2_bytes,
            machine_code=self._machine_code(name), aside=aside_counters(self._library, index, view.scale),
        )  # fmt: skip
        return Launch(
            name, (grid[0], grid[1], grid[2]), (block[0], block[1], block[2]), view.dynamic_shared, resources,
            view.blocks_run, counters, line_costs(code, counts, sites, view.scale), bool(view.incomplete),
        )  # fmt: skip
