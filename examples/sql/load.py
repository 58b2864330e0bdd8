"""Inserts COUNT measurements into a topic, 100 in each statement.

python3 load.py HOST PORT TOPIC COUNT

The topic must exist (memlane topic create TOPIC). Each row becomes a record; a statement is acknowledged when its records are.
"""

import asyncio
import json
import sys

import asyncpg

ROWS = 100


async def main():
    if len(sys.argv) != 5:
        raise SystemExit(__doc__)
    host, port, topic, count = sys.argv[1:]
    connection = await asyncpg.connect(
        host=host, port=int(port), user="loader", database="memlane", ssl=False
    )
    name = topic.replace('"', '""')
    places = ", ".join(f"(${2 * row + 1}::text, ${2 * row + 2}::text)" for row in range(ROWS))
    whole = await connection.prepare(f'INSERT INTO "{name}" (key, value) VALUES {places}')
    one = await connection.prepare(f'INSERT INTO "{name}" (key, value) VALUES ($1::text, $2::text)')
    rows = [
        (f"sensor-{number % 7}", json.dumps({"celsius": 20 + number % 5}))
        for number in range(int(count))
    ]
    while len(rows) >= ROWS:
        await whole.fetch(*(part for row in rows[:ROWS] for part in row))
        del rows[:ROWS]
    for row in rows:
        await one.fetch(*row)
    inserted = await connection.fetchval(f'SELECT count(*) FROM "{name}"')
    print(f"{inserted} rows")
    await connection.close()


asyncio.run(main())
