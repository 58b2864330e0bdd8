import java.io.StringReader;
import java.io.StringWriter;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Objects;
import java.util.Properties;

import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;

/** JDBC: `Scenarios SCENARIO HOST PORT TABLE`; the table is that of `python/scenarios.py`. */
public final class Scenarios {
    private final Connection connection;
    private final String table;

    private Scenarios(Connection connection, String table) {
        this.connection = connection;
        this.table = table;
    }

    public static void main(String[] arguments) throws Exception {
        Properties options = new Properties();
        options.setProperty("user", "tester");
        options.setProperty("sslmode", "disable");
        options.setProperty("gssEncMode", "disable");
        options.setProperty("socketTimeout", "60");
        String url = "jdbc:postgresql://" + arguments[1] + ":" + arguments[2] + "/memlane";
        try (Connection connection = DriverManager.getConnection(url, options)) {
            Scenarios scenarios = new Scenarios(connection, arguments[3]);
            switch (arguments[0]) {
                case "prepared" -> scenarios.prepared();
                case "fetchSize" -> scenarios.fetchSize();
                case "batch" -> scenarios.batch();
                case "errors" -> scenarios.errors();
                case "metadata" -> scenarios.metadata();
                case "copy" -> scenarios.copy();
                default -> throw new IllegalArgumentException(arguments[0]);
            }
        }
    }

    /** More often than the driver needs to prepare it on the server, and to ask for binary values. */
    private void prepared() throws SQLException {
        String query = "SELECT key, \"offset\", (value->>'qty')::int AS qty, (value->>'price')::float8 "
            + "AS price, time, value->>'no' AS missing FROM " + table + " WHERE key = ?";
        try (PreparedStatement statement = connection.prepareStatement(query)) {
            for (int number = 0; number < 30; number++) {
                statement.setString(1, "k" + number);
                try (ResultSet rows = statement.executeQuery()) {
                    equal(rows.next(), true);
                    equal(rows.getString("key"), "k" + number);
                    equal(rows.getLong(2), (long) (number / 3));
                    equal(rows.getInt("qty"), number);
                    equal(rows.getDouble("price"), number + 0.5);
                    equal(rows.getTimestamp("time").getTime() > 0, true);
                    equal(rows.getString("missing"), null);
                    equal(rows.getMetaData().getColumnLabel(3), "qty");
                    equal(rows.next(), false);
                }
            }
        }
    }

    private void fetchSize() throws SQLException {
        connection.setAutoCommit(false);
        String query = "SELECT key FROM " + table + " WHERE key LIKE 'k%' ORDER BY (value->>'qty')::int";
        try (Statement statement = connection.createStatement()) {
            statement.setFetchSize(4);
            int number = 0;
            try (ResultSet rows = statement.executeQuery(query)) {
                for (; rows.next(); number++) {
                    equal(rows.getString(1), "k" + number);
                }
            }
            equal(number, 30);
        }
        connection.commit();
    }

    private void batch() throws SQLException {
        connection.setAutoCommit(false);
        String insert = "INSERT INTO " + table + " (key, value) VALUES (?, ?)";
        try (PreparedStatement statement = connection.prepareStatement(insert)) {
            for (int number = 0; number < 20; number++) {
                statement.setString(1, "batch");
                statement.setString(2, "value " + number);
                statement.addBatch();
            }
            equal(statement.executeBatch().length, 20);
        }
        connection.commit();
        try (Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery(
                    "SELECT count(*), count(DISTINCT value) FROM " + table + " WHERE key = 'batch'")) {
            equal(rows.next(), true);
            equal(rows.getInt(1), 20);
            equal(rows.getInt(2), 20);
        }
        connection.commit();
    }

    private void errors() throws SQLException {
        try (Statement statement = connection.createStatement()) {
            String[][] queries = {{"SELEC 1", "42601"}, {"SELECT * FROM nothing_there", "42P01"}};
            for (String[] query : queries) {
                try {
                    statement.executeQuery(query[0]);
                    throw new AssertionError(query[0] + " did not fail");
                } catch (SQLException error) {
                    equal(error.getSQLState(), query[1]);
                }
            }
            equal(connection.isValid(5), true);
        }
    }

    private void copy() throws Exception {
        CopyManager copies = connection.unwrap(PGConnection.class).getCopyAPI();
        String from = "COPY " + table + " (key, value) FROM STDIN WITH (FORMAT csv)";
        equal(copies.copyIn(from, new StringReader("j1,\"a,b\"\nj2,\n")), 2L);
        StringWriter out = new StringWriter();
        String to = "COPY (SELECT key, value FROM " + table + " WHERE key LIKE 'j_' ORDER BY 1) TO "
            + "STDOUT WITH (FORMAT csv, HEADER)";
        equal(copies.copyOut(to, out), 2L);
        equal(out.toString(), "key,value\nj1,\"a,b\"\nj2,\n");
        try {
            copies.copyIn("COPY " + table + " (partition) FROM STDIN", new StringReader("x\n"));
            throw new AssertionError("a partition of x was taken");
        } catch (SQLException error) {
            equal(error.getSQLState(), "22P02");
        }
        equal(connection.isValid(5), true);
    }

    private void metadata() throws SQLException {
        DatabaseMetaData about = connection.getMetaData();
        equal(rows(about.getTables(null, "public", table, new String[] {"TABLE"}), 1, 2, 3, 4),
            "memlane public " + table + " TABLE\n");
        equal(rows(about.getColumns(null, "public", table, "%"), 4, 6, 18, 17),
            "partition int4 NO 1\noffset int8 NO 2\ntime timestamptz YES 3\nkey text YES 4\n"
            + "value text YES 5\nheaders json YES 6\n");
        equal(rows(about.getColumns(null, null, table, "off%"), 4), "offset\n");
        equal(rows(about.getPrimaryKeys(null, "public", table), 4), "");
        equal(rows(about.getIndexInfo(null, "public", table, false, true), 6), "");
        equal(rows(about.getImportedKeys(null, "public", table), 4), "");
        equal(rows(about.getSchemas(), 1, 2),
            "information_schema memlane\npg_catalog memlane\npublic memlane\n");
        equal(rows(about.getCatalogs(), 1), "memlane\n");
        equal(rows(about.getTableTypes(), 1).contains("TABLE\n"), true);
        String types = "\n" + rows(about.getTypeInfo(), 1, 2);
        for (String type : new String[] {"int8 -5", "text 12", "timestamptz 93", "bool -7"}) {
            equal(types.contains("\n" + type + "\n"), true);
        }
        equal(rows(about.getFunctions(null, null, "%"), 1), "");
        equal(about.getSQLKeywords().contains("ilike"), true);
        equal(connection.getSchema() + " " + connection.getCatalog(), "public memlane");
    }

    private static String rows(ResultSet rows, int... columns) throws SQLException {
        StringBuilder text = new StringBuilder();
        while (rows.next()) {
            for (int index = 0; index < columns.length; index++) {
                text.append(index > 0 ? " " : "").append(rows.getString(columns[index]));
            }
            text.append("\n");
        }
        rows.close();
        return text.toString();
    }

    private static void equal(Object found, Object expected) {
        if (!Objects.equals(found, expected)) {
            throw new AssertionError(found + " instead of " + expected);
        }
    }
}
