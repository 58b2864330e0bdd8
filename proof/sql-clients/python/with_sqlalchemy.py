"""SQLAlchemy's inspector, which reads the catalogue of PostgreSQL."""

import sqlalchemy

from scenarios import equal


def reflection(host, port, table):
    engine = sqlalchemy.create_engine(f"postgresql+psycopg://tester@{host}:{port}/memlane")
    inspector = sqlalchemy.inspect(engine)
    equal(set(inspector.get_schema_names()), {"information_schema", "public"}, "schemas")
    if table not in inspector.get_table_names():
        raise AssertionError(f"{table} is not among {inspector.get_table_names()}")
    equal(inspector.has_table("no_such_table"), False, "a table that is not there")
    columns = [(it["name"], str(it["type"]), it["nullable"]) for it in inspector.get_columns(table)]
    equal(columns, [
        ("partition", "INTEGER", False), ("offset", "BIGINT", False), ("time", "TIMESTAMP", True),
        ("key", "TEXT", True), ("value", "TEXT", True), ("headers", "JSON", True),
    ], "columns")
    equal(inspector.get_pk_constraint(table)["constrained_columns"], [], "primary key")
    equal(inspector.get_indexes(table), [], "indexes")
    equal(inspector.get_foreign_keys(table), [], "foreign keys")
    reflected = sqlalchemy.Table(table, sqlalchemy.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        query = sqlalchemy.select(reflected.c.value).where(reflected.c.key == "k3")
        equal(connection.execute(query).scalar(), '{"name": "n3", "qty": 3, "price": 3.5}', "value")
