"""Follows the records of a topic whose field FIELD is at least MINIMUM, and prints at least COUNT of them.

python3 follow.py HOST PORT TOPIC FIELD MINIMUM COUNT [POSITION]

The last line is a position, from which another run continues: no record between the two is lost.
"""

import json
import sys

import psycopg
from psycopg import sql

QUERY = """SUBSCRIBE TO (
    SELECT key, value FROM {topic} WHERE (value->>{field})::numeric >= {minimum}
) WITH (PROGRESS, POSITION{start}) {point}"""


def main():
    if len(sys.argv) not in (7, 8):
        raise SystemExit(__doc__)
    host, port, topic, field, minimum, count, *position = sys.argv[1:]
    query = sql.SQL(QUERY).format(
        topic=sql.Identifier(topic),
        field=sql.Literal(field),
        minimum=sql.SQL(str(float(minimum))),
        start=sql.SQL(", SNAPSHOT = false" if position else ""),
        point=sql.SQL("AS OF {}").format(sql.Literal(position[0])) if position else sql.SQL(""),
    )
    left = int(count)
    with psycopg.connect(
        host=host, port=port, user="follower", dbname="memlane", autocommit=True
    ) as connection:
        with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            for row in cursor.stream(query):
                if row["mz_progressed"]:
                    # All rows before this one belong to records before this position.
                    if left <= 0:
                        print(row["mz_position"], flush=True)
                        break
                else:
                    left -= 1
                    print(row["key"], json.loads(row["value"])[field], flush=True)


main()
