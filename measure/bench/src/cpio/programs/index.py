"""A full-text index (Xapian): build FOLDER INDEX, find INDEX.

A document's first word is its name; `find` looks each up that stands on standard input and prints
how many documents there are and which name was not found alone.
"""

import os
import sys

import xapian

FLUSH_DOCUMENTS = 2000


def documents(folder):
    for path, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            with open(os.path.join(path, name), encoding="ascii") as file:
                yield name, file.read()


def build(folder, index):
    database = xapian.WritableDatabase(index, xapian.DB_CREATE)
    terms = xapian.TermGenerator()
    terms.set_stemmer(xapian.Stem("en"))
    for number, (name, text) in enumerate(documents(folder), 1):
        document = xapian.Document()
        document.set_data(name)
        terms.set_document(document)
        terms.index_text(text)
        database.add_document(document)
        if number % FLUSH_DOCUMENTS == 0:
            database.commit()
    database.commit()
    database.close()


def find(index):
    database = xapian.Database(index)
    lost = []
    for name in sys.stdin.read().split():
        enquire = xapian.Enquire(database)
        enquire.set_query(xapian.Query(name))
        found = [match.document.get_data().decode() for match in enquire.get_mset(0, 2)]
        if found != [name]:
            lost.append(name)
    print(f"{database.get_doccount()} documents, lost: {' '.join(lost) or 'none'}")


if sys.argv[1] == "build":
    build(*sys.argv[2:])
else:
    find(*sys.argv[2:])
