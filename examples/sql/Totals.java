import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.util.Properties;

/**
 * Prints how much each customer ordered, of those with at least MINIMUM.
 *
 * <p>{@code java -cp postgresql.jar Totals.java HOST PORT TOPIC MINIMUM}, with PostgreSQL's JDBC
 * driver and a topic that {@code log/Orders.java} wrote.
 */
public final class Totals {
    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 4) {
            System.err.println("usage: Totals.java HOST PORT TOPIC MINIMUM");
            System.exit(2);
        }
        Properties options = new Properties();
        options.setProperty("user", "reader");
        options.setProperty("sslmode", "disable");
        String url = "jdbc:postgresql://" + arguments[0] + ":" + arguments[1] + "/memlane";
        String topic = arguments[2].replace("\"", "\"\"");
        String query = "SELECT value->>'customer' AS customer, sum((value->>'quantity')::bigint) AS quantity "
            + "FROM \"" + topic + "\" GROUP BY 1 HAVING sum((value->>'quantity')::bigint) >= ? ORDER BY 1";
        try (Connection connection = DriverManager.getConnection(url, options);
                PreparedStatement statement = connection.prepareStatement(query)) {
            statement.setLong(1, Long.parseLong(arguments[3]));
            try (ResultSet rows = statement.executeQuery()) {
                while (rows.next()) {
                    System.out.println(rows.getString("customer") + " " + rows.getLong("quantity"));
                }
            }
        }
    }
}
