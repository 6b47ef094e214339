"""Frozen values that both sides speak: what commands carry and what replies say.

Each module holds one noun of the domain. The model knows neither bytes nor rules: layouts stand
beside the commands, rules in ``validation``.
"""
