"""The strategy-coordinated search: a population of strategies, bred, translated, evaluated, kept."""
