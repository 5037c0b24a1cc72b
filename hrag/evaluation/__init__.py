"""How good is a search? Measured through the client, with questions whose answers are known.

A system is a way to search: a mode with its options. The gold of a question is the expected texts
(spans or quotes that answer the question), or the expected documents (which contain the answer).

`question_files` reads the questions, `systems` parses the systems to compare, and `searches`
searches with every system for every question. `gold` and `retrieval_metrics` score the results at
equal token budgets, and `bootstrap` estimates how much chance alone changes the figures. `judge`
lets a chat model compare answers, and `generator` lets a chat model write questions. `summary` puts
all figures into one value. `question_kinds` compares the systems for each kind of question,
`question_records` keeps the result of each system for each question, and `findings` says in
sentences which system is better. `html_report` and `csv_report` write all of this for people.

The package uses the public client and does not depend on engines or terminals. It loads neither
lmdb nor hnswlib.
"""
