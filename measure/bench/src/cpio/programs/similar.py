"""Similarity search (FAISS): build INDEX VECTORS SEED, search INDEX VECTORS SEED THREADS.

Vectors lie in an inverted file that is mapped into memory, so that a search reads what it needs.
Each query is a stored vector with noise added; `search` prints how many did not find theirs first.
"""

import sys

import faiss
import numpy

DIMENSIONS = 64
VECTORS_EACH_BATCH = 20_000
QUERIES = 2000
LISTS_LOOKED_AT = 8
NOISE = 0.05


def batch(seed, first, count):
    """The same for the same seed and place."""
    noise = numpy.random.default_rng([seed, first])
    return noise.standard_normal((count, DIMENSIONS), dtype=numpy.float32)


def batches(seed, vectors):
    for first in range(0, vectors, VECTORS_EACH_BATCH):
        yield first, batch(seed, first, min(VECTORS_EACH_BATCH, vectors - first))


def build(path, vectors, seed):
    lists = max(16, int(vectors**0.5))
    quantizer = faiss.IndexFlatL2(DIMENSIONS)
    index = faiss.IndexIVFFlat(quantizer, DIMENSIONS, lists)
    index.train(batch(seed, 0, min(vectors, max(40 * lists, VECTORS_EACH_BATCH))))
    for _, part in batches(seed, vectors):
        index.add(part)
    faiss.write_index(index, path)


def search(path, vectors, seed, threads):
    faiss.omp_set_num_threads(threads)
    index = faiss.read_index(path, faiss.IO_FLAG_MMAP)
    index.nprobe = LISTS_LOOKED_AT
    assert index.ntotal == vectors
    asked, lost = 0, 0
    count = -(-vectors // VECTORS_EACH_BATCH)
    for number, (first, part) in enumerate(batches(seed, vectors)):
        # Queries are spread over all batches.
        wanted = QUERIES * (number + 1) // count - QUERIES * number // count
        rows = numpy.linspace(0, len(part) - 1, min(wanted, len(part)), dtype=numpy.int64)
        noise = numpy.random.default_rng([seed, first, 1]).standard_normal(part[rows].shape)
        queries = (part[rows] + NOISE * noise).astype(numpy.float32)
        _, found = index.search(queries, 10)
        asked += len(rows)
        lost += int((found[:, 0] != first + rows).sum())
    print(f"{asked} {lost}")


path, *numbers = sys.argv[2:]
numbers = [int(number) for number in numbers]
if sys.argv[1] == "build":
    build(path, *numbers)
else:
    search(path, *numbers)
