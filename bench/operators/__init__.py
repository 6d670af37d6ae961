"""torch's own operator samples (OpInfo) through export and verification: what today's exporter and runtime do to each operator.

python -m bench.operators --seed 7                                   # all of them
python -m bench.operators --seed 7 --only elu,special.erfcx          # some of them, by name
python -m bench.operators --seed 7 --json rows.jsonl                 # goes on where it was stopped
python -m bench.operators --seed 7 --json rows.jsonl --markdown docs/operators.md

Needs the package expecttest, which torch.testing imports.
"""
