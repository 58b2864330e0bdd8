import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions of Java's producer and consumer: {@code Transactions SCENARIO ADDRESS TOPIC}. */
public final class Transactions {
    private static final long WAIT_MS = 60_000;

    private final String address;
    private final String topic;

    private Transactions(String address, String topic) {
        this.address = address;
        this.topic = topic;
    }

    public static void main(String[] arguments) throws Exception {
        Transactions scenarios = new Transactions(arguments[1], arguments[2]);
        switch (arguments[0]) {
            case "commit-and-abort" -> scenarios.commitAndAbort();
            case "fencing" -> scenarios.fencing();
            case "transform" -> scenarios.transform(arguments[3]);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    /** Readers of committed records see whole transactions, the others everything. */
    private void commitAndAbort() {
        List<String> committed = new ArrayList<>();
        List<String> all = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(unique())) {
            for (int index = 0; index < 10; index++) {
                producer.beginTransaction();
                List<String> values = values(index + "-", 40);
                send(producer, topic, values);
                all.addAll(values);
                if (index % 3 == 1) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                    committed.addAll(values);
                }
            }
        }
        equal(read(topic, "read_committed", committed.size()), committed, "committed records");
        equal(read(topic, "read_uncommitted", all.size()), all, "all records");
    }

    /** The second producer of a transactional id ends what the first began, and fences it. */
    private void fencing() throws Exception {
        String name = unique();
        try (KafkaProducer<String, String> first = producer(name)) {
            first.beginTransaction();
            send(first, topic, List.of("of the first"));
            first.flush();
            try (KafkaProducer<String, String> second = producer(name)) {
                try {
                    first.send(new ProducerRecord<>(topic, 0, null, "too late")).get();
                    first.commitTransaction();
                    throw new AssertionError("the fenced producer could commit");
                } catch (ExecutionException refusal) {
                    if (!isFenced(refusal.getCause())) {
                        throw refusal;
                    }
                } catch (ProducerFencedException | InvalidProducerEpochException refusal) {
                    // What was to be shown.
                }
                second.beginTransaction();
                send(second, topic, List.of("of the second"));
                second.commitTransaction();
            }
        }
        equal(read(topic, "read_committed", 1), List.of("of the second"), "records");
    }

    private static boolean isFenced(Throwable cause) {
        return cause instanceof ProducerFencedException
            || cause instanceof InvalidProducerEpochException;
    }

    /** What is read is committed with what is written; an abort takes both back. */
    private void transform(String target) {
        String group = unique();
        List<String> inputs = values("in-", 300);
        try (KafkaProducer<String, String> producer = producer(null)) {
            send(producer, topic, inputs);
        }
        try (KafkaProducer<String, String> producer = producer(unique())) {
            int done = 0;
            for (int round = 0; done < inputs.size(); round++) {
                try (KafkaConsumer<String, String> consumer = consumer(group, "read_committed")) {
                    consumer.subscribe(List.of(topic));
                    List<ConsumerRecord<String, String>> read = poll(consumer, 50, WAIT_MS);
                    equal(read.get(0).offset(), (long) done, "offset of the first input");
                    producer.beginTransaction();
                    send(producer, target, read.stream().map(it -> "out of " + it.value()).toList());
                    long next = read.get(read.size() - 1).offset() + 1;
                    producer.sendOffsetsToTransaction(
                        Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(next)),
                        consumer.groupMetadata());
                    if (round % 3 == 1) {
                        producer.abortTransaction();
                    } else {
                        producer.commitTransaction();
                        done = (int) next;
                    }
                }
            }
        }
        List<String> outputs = inputs.stream().map(it -> "out of " + it).toList();
        equal(read(target, "read_committed", outputs.size()), outputs, "outputs");
    }

    private KafkaProducer<String, String> producer(String transactionalId) {
        Properties settings = settings();
        settings.put("linger.ms", "1");
        if (transactionalId != null) {
            settings.put("transactional.id", transactionalId);
        }
        var producer =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        if (transactionalId != null) {
            producer.initTransactions();
        }
        return producer;
    }

    private KafkaConsumer<String, String> consumer(String group, String isolation) {
        Properties settings = settings();
        settings.put("group.id", group);
        settings.put("isolation.level", isolation);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", "50");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        return settings;
    }

    private static void send(KafkaProducer<String, String> producer, String topic, List<String> values) {
        values.forEach(value -> producer.send(new ProducerRecord<>(topic, 0, null, value)));
    }

    /** `count` values from the beginning, and more where there are more. */
    private List<String> read(String topic, String isolation, int count) {
        try (KafkaConsumer<String, String> consumer = consumer(unique(), isolation)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            List<ConsumerRecord<String, String>> found = poll(consumer, count, WAIT_MS);
            // Whatever else is there has come with a second answer.
            found.addAll(poll(consumer, 1, 500));
            return new ArrayList<>(found.stream().map(ConsumerRecord::value).toList());
        }
    }

    private static List<ConsumerRecord<String, String>> poll(
            KafkaConsumer<String, String> consumer, int count, long waitMs) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long deadline = System.nanoTime() + waitMs * 1_000_000;
        while (found.size() < count && System.nanoTime() < deadline) {
            consumer.poll(Duration.ofMillis(100)).forEach(found::add);
        }
        return found;
    }

    private static List<String> values(String label, int count) {
        List<String> values = new ArrayList<>();
        for (int index = 0; index < count; index++) {
            values.add(label + index);
        }
        return values;
    }

    private static String unique() {
        return "java-" + UUID.randomUUID();
    }

    private static void equal(Object found, Object expected, String what) {
        if (!found.equals(expected)) {
            throw new AssertionError(what + ": " + found + " is not " + expected);
        }
    }
}
