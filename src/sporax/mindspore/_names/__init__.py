"""How MindSpore's names are found: the alias `mindspore`, module paths, and answers for names that are missing."""
