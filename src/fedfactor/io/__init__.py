"""Reading and writing: files, tables, results of runs."""
