"""`penstock topic produce`, `consume` and `tail`: records from and to a terminal, a file or a pipe.

`consume` reads and prints, `produce` writes; `shown` has the forms of a record, `filters` the expressions that choose
records. `decoded` has records with the schemas of a registry. `produce --json` reads the output of `consume -o json`.
"""
