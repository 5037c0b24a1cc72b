"""How good is a search? Questions with known answers, measured through the client.

`question_files` reads the questions, `systems` says what is compared, `searches` asks every
system every question, `gold` and `metrics` judge what came back at equal token budgets, and
`bootstrap` says how far chance alone would move the figures. `judge` lets a chat model compare
answers, `generator` lets one write questions, `summary` puts all of it into one value, and
`html_report` draws that.

Uses the public client and knows nothing of engines or terminals. Loads neither lmdb nor
hnswlib.
"""
