// Loads with the Java client: `java Load JSON`, where JSON is a `Start` of benches/kafka/loads/load.py.
// It speaks the protocol of that module: "ready", then one line of figures for each line on the standard input.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class Load {
    private static final int VALUES = 4_096;
    private static final int KEYS = 100_000;
    private static final Duration POLL = Duration.ofMillis(100);
    private static final double MIB = 1_048_576.0;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final JsonNode load;
    private final String bootstrap;
    private final String topic;
    private final int partitions;
    private final LongAdder bytes = new LongAdder();
    private final LongAdder records = new LongAdder();
    private final CountDownLatch ready = new CountDownLatch(1);
    private long[] latencies = new long[1 << 16]; // ns since the last report; guarded by this
    private int latencyCount;
    private long reportedNs = System.nanoTime();

    private Load(JsonNode start) {
        load = start.get("load");
        bootstrap = start.get("bootstrap").asText();
        topic = start.get("topic").asText();
        partitions = start.get("partitions").asInt();
    }

    public static void main(String[] arguments) throws Exception {
        new Load(JSON.readTree(arguments[0])).run();
    }

    private interface Work {
        void run(int client) throws Exception;
    }

    private void run() throws Exception {
        switch (load.get("kind").asText()) {
            case "produce" -> start("produce", this::produce);
            case "consume" -> start("consume", this::consume);
            case "latency" -> {
                CountDownLatch reading = new CountDownLatch(1);
                start("receive", client -> receive(reading));
                start("send", client -> send(reading));
            }
            default -> throw new IllegalArgumentException("no such kind of load");
        }
        ready.await();
        System.out.println("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        while (input.readLine() != null) {
            System.out.println(JSON.writeValueAsString(report()));
        }
        Runtime.getRuntime().halt(0); // the load is of no use after its last report
    }

    private void start(String name, Work work) {
        for (int each = 0; each < load.get("clients").asInt(); each++) {
            int client = each;
            Thread thread = new Thread(() -> {
                try {
                    work.run(client);
                } catch (Throwable problem) {
                    fail(problem);
                }
            }, name + client);
            thread.setDaemon(true);
            thread.start();
        }
    }

    private static void fail(Throwable problem) {
        problem.printStackTrace();
        Runtime.getRuntime().halt(1);
    }

    private synchronized Map<String, Double> report() {
        long now = System.nanoTime();
        double seconds = (now - reportedNs) / 1e9;
        reportedNs = now;
        long[] sorted = Arrays.copyOf(latencies, latencyCount);
        latencyCount = 0;
        Arrays.sort(sorted);
        return Map.of(
            "seconds", seconds,
            "mib", bytes.sumThenReset() / MIB,
            "records", (double) records.sumThenReset(),
            "p50_ms", quantileMs(sorted, 0.5),
            "p99_ms", quantileMs(sorted, 0.99));
    }

    private static double quantileMs(long[] sorted, double share) {
        return sorted.length == 0 ? 0 : sorted[(int) Math.ceil(share * sorted.length) - 1] / 1e6;
    }

    private void count(long size, int number) {
        bytes.add(size);
        records.add(number);
        if (ready.getCount() > 0) {
            ready.countDown();
        }
    }

    private void produce(int client) {
        Random random = new Random(client);
        byte[][] values = values(random);
        byte[][] keys = load.get("random_keys").asBoolean() ? keys(random) : null;
        Callback done = (metadata, problem) -> {
            if (problem != null) {
                fail(problem);
            }
            count(metadata.serializedValueSize(), 1);
        };
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            for (int number = 0; ; number++) {
                byte[] key = keys == null ? null : keys[random.nextInt(KEYS)];
                producer.send(new ProducerRecord<>(topic, key, values[number % VALUES]), done);
            }
        }
    }

    private void consume(int client) {
        List<TopicPartition> assigned = new ArrayList<>();
        for (int partition = client; partition < partitions; partition += load.get("clients").asInt()) {
            assigned.add(new TopicPartition(topic, partition));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(assigned);
            Map<TopicPartition, Long> ends = consumer.endOffsets(assigned);
            consumer.seekToBeginning(assigned);
            while (true) {
                ConsumerRecords<byte[], byte[]> found = consumer.poll(POLL);
                for (TopicPartition partition : found.partitions()) {
                    long size = 0;
                    List<ConsumerRecord<byte[], byte[]>> run = found.records(partition);
                    for (ConsumerRecord<byte[], byte[]> record : run) {
                        size += record.serializedValueSize();
                    }
                    count(size, run.size());
                    if (run.get(run.size() - 1).offset() + 1 >= ends.get(partition)) {
                        consumer.seekToBeginning(List.of(partition));
                    }
                }
            }
        }
    }

    /** Sends at a steady rate; each record carries the time at which it was due. */
    private void send(CountDownLatch reading) throws Exception {
        reading.await();
        byte[][] values = values(new Random(1));
        Callback done = (metadata, problem) -> {
            if (problem != null) {
                fail(problem);
            }
        };
        long intervalNs = Math.round(1e9 / load.get("records_per_second").asDouble());
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            producer.partitionsFor(topic);
            long due = System.nanoTime();
            for (int number = 0; ; number++, due += intervalNs) {
                long wait;
                while ((wait = due - System.nanoTime()) > 0) {
                    LockSupport.parkNanos(wait);
                }
                byte[] value = values[number % VALUES].clone();
                ByteBuffer.wrap(value).putLong(0, due);
                producer.send(new ProducerRecord<>(topic, value), done);
            }
        }
    }

    private void receive(CountDownLatch reading) {
        List<TopicPartition> assigned = new ArrayList<>();
        for (int partition = 0; partition < partitions; partition++) {
            assigned.add(new TopicPartition(topic, partition));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(assigned);
            consumer.seekToEnd(assigned);
            assigned.forEach(consumer::position); // else a record may come before the seek is done
            reading.countDown();
            while (true) {
                ConsumerRecords<byte[], byte[]> found = consumer.poll(POLL);
                long now = System.nanoTime();
                for (ConsumerRecord<byte[], byte[]> record : found) {
                    note(now - ByteBuffer.wrap(record.value()).getLong(0));
                    count(record.serializedValueSize(), 1);
                }
            }
        }
    }

    private synchronized void note(long latencyNs) {
        if (latencyCount == latencies.length) {
            latencies = Arrays.copyOf(latencies, 2 * latencyCount);
        }
        latencies[latencyCount++] = latencyNs;
    }

    private KafkaProducer<byte[], byte[]> producer() {
        return new KafkaProducer<>(settings(), new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaConsumer<byte[], byte[]> consumer() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        load.get("settings").fields().forEachRemaining(each -> settings.put(each.getKey(), each.getValue().asText()));
        return settings;
    }

    /** Values that compress to about a half: words between random digits. */
    private byte[][] values(Random random) {
        byte[] words = "{\"service\":\"checkout\",\"level\":\"info\",\"order\":".getBytes(StandardCharsets.UTF_8);
        byte[][] values = new byte[VALUES][load.get("record_bytes").asInt()];
        for (byte[] value : values) {
            for (int position = 0; position < value.length; position++) {
                boolean isWord = position / words.length % 2 == 0;
                value[position] = isWord ? words[position % words.length] : (byte) ('0' + random.nextInt(64));
            }
        }
        return values;
    }

    private static byte[][] keys(Random random) {
        byte[][] keys = new byte[KEYS][8];
        for (byte[] key : keys) {
            random.nextBytes(key);
        }
        return keys;
    }
}
