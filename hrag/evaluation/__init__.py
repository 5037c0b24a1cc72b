"""How good is a search? Measured through the client, with questions whose answers are known.

`question_files` reads the questions, `systems` describes what is compared, and `searches` asks
every system every question. `gold` and `metrics` score the results at equal token budgets, and
`bootstrap` estimates how much chance alone changes the figures. `judge` lets a chat model compare
answers, `generator` lets a chat model write questions, `summary` puts the figures into one value,
and `html_report` draws it.

The package uses the public client and knows nothing of engines or terminals. It loads neither
lmdb nor hnswlib.
"""
