import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Writes COUNT records, and reads as many as a member of a group, which commits after each batch.
 *
 * <p>{@code java -cp 'kafka/libs/*' Orders.java BROKER TOPIC COUNT}, where {@code kafka} is an
 * unpacked release of Apache Kafka.
 */
public final class Orders {
    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 3) {
            System.err.println("usage: Orders.java BROKER TOPIC COUNT");
            System.exit(2);
        }
        String broker = arguments[0];
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        produce(broker, topic, count);
        System.out.println(consume(broker, topic, count) + " records");
    }

    private static void produce(String broker, String topic, int count) throws Exception {
        Map<String, Object> settings = Map.of(
            ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, broker,
            ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class,
            ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class);
        try (var producer = new KafkaProducer<String, String>(settings)) {
            for (int number = 0; number < count - 1; number++) {
                producer.send(record(topic, number));
            }
            // The last one is acknowledged before this goes on; close waits for the others.
            producer.send(record(topic, count - 1)).get();
        }
    }

    private static ProducerRecord<String, String> record(String topic, int number) {
        String value = "{\"customer\": \"c" + number % 3 + "\", \"quantity\": " + number + "}";
        return new ProducerRecord<>(topic, "order-" + number, value);
    }

    private static int consume(String broker, String topic, int count) {
        Map<String, Object> settings = Map.of(
            ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, broker,
            ConsumerConfig.GROUP_ID_CONFIG, "orders-example",
            ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
            ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false,
            ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class,
            ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class);
        int read = 0;
        try (var consumer = new KafkaConsumer<String, String>(settings)) {
            consumer.subscribe(List.of(topic));
            while (read < count) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    read += record.key().startsWith("order-") ? 1 : 0;
                }
                consumer.commitSync();
            }
        }
        return read;
    }
}
