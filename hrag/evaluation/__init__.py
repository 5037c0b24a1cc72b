"""How good is a search? Measured through the client, with questions whose answers are known.

A system is a way to search, with all its settings. The gold of a question is the text or the
documents that are expected.

`question_files` reads the questions, `systems` parses the systems to compare, and `searches` asks
every system every question. `gold` and `retrieval_metrics` score the results at equal token
budgets, and `bootstrap` estimates how much chance alone changes the figures. `judge` lets a chat
model compare answers, and `generator` lets a chat model write questions. `summary` puts all figures
into one value, and `html_report` draws them.

The package uses the public client and does not depend on engines or terminals. It loads neither
lmdb nor hnswlib.
"""
