// The Java client. Speaks the protocol of clients/protocol.py; compiled by tests/conformance/provision.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.internals.AppInfoParser;

public final class JavaClient {
    private static final String MARK = "@@ ";
    private static final int SESSION_TIMEOUT_MS = 6_000;
    private static final int STATIC_SESSION_TIMEOUT_MS = 30_000;
    // A member whose session expires within a transaction cannot commit it: longer than the pauses of a busy machine.
    private static final int TRANSFORM_SESSION_TIMEOUT_MS = 20_000;
    private static final Duration IDLE = Duration.ofSeconds(1);
    private static final long CONSUME_TIMEOUT_MS = 60_000;
    private static final long TIMEOUT_S = 30;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String bootstrap;
    private final Properties login;
    private final BufferedReader input;
    private Admin opened;
    private KafkaConsumer<String, String> member;
    private KafkaShareConsumer<String, String> sharer;
    private KafkaProducer<String, String> producer;
    private String target;

    private JavaClient(String bootstrap, Properties login, BufferedReader input) {
        this.bootstrap = bootstrap;
        this.login = login;
        this.input = input;
    }

    private static void say(String name, Object value) throws Exception {
        Map<String, Object> message = new HashMap<>();
        message.put(name, value);
        System.out.println(MARK + JSON.writeValueAsString(message));
        System.out.flush();
    }

    private Properties settings(Object... pairs) {
        Properties properties = new Properties();
        properties.putAll(login);
        properties.put("bootstrap.servers", bootstrap);
        for (int number = 0; number < pairs.length; number += 2) {
            properties.put(pairs[number], pairs[number + 1]);
        }
        return properties;
    }

    private KafkaConsumer<String, String> consumer(Object... pairs) {
        Properties properties = settings(pairs);
        properties.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    private KafkaProducer<String, String> producer(Object... pairs) {
        return new KafkaProducer<>(settings(pairs), new StringSerializer(), new StringSerializer());
    }

    private Admin admin() {
        if (opened == null) {
            opened = Admin.create(settings());
        }
        return opened;
    }

    private static <T> T done(Future<T> future) throws Exception {
        return future.get(TIMEOUT_S, TimeUnit.SECONDS);
    }

    private void at(String step, JsonNode request) throws Exception {
        if (step.equals(request.path("hold").asText())) {
            say("at", step);
            if (!step.equals("committing")) {
                input.readLine();
            }
        }
    }

    private Object produce(JsonNode request) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> some = producer("compression.type", request.get("codec").asText())) {
            for (int number = 0; number < request.get("values").size(); number++) {
                String key = request.hasNonNull("keys") ? request.get("keys").get(number).asText() : null;
                String value = request.get("values").get(number).asText();
                sent.add(some.send(new ProducerRecord<>(request.get("topic").asText(), 0, key, value)));
            }
            List<Long> offsets = new ArrayList<>();
            for (Future<RecordMetadata> each : sent) {
                offsets.add(done(each).offset());
            }
            return offsets;
        }
    }

    private Object consume(JsonNode request) {
        String topic = request.get("topic").asText();
        String isolation = request.path("committed").asBoolean() ? "read_committed" : "read_uncommitted";
        List<Object> read = new ArrayList<>();
        try (KafkaConsumer<String, String> some = consumer("isolation.level", isolation)) {
            some.assign(some.partitionsFor(topic).stream().map(each -> new TopicPartition(topic, each.partition()))
                .collect(Collectors.toList()));
            long deadline = System.currentTimeMillis() + CONSUME_TIMEOUT_MS;
            while (read.size() < request.get("count").asInt() && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> each : some.poll(IDLE)) {
                    read.add(Arrays.asList(each.partition(), each.offset(), each.key(), each.value()));
                }
            }
        }
        return read;
    }

    private Object join(JsonNode request) {
        String protocol = request.path("protocol").asText("classic");
        String group = request.get("group").asText();
        Properties settings = settings("group.id", group, "group.protocol", protocol, "auto.offset.reset", "earliest");
        if (request.hasNonNull("instance")) {
            settings.put("group.instance.id", request.get("instance").asText());
        }
        if (protocol.equals("classic")) {
            settings.put("session.timeout.ms", request.hasNonNull("instance") ? STATIC_SESSION_TIMEOUT_MS : SESSION_TIMEOUT_MS);
        }
        member = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        List<String> topics = new ArrayList<>();
        request.get("topics").forEach(each -> topics.add(each.asText()));
        member.subscribe(topics);
        return null;
    }

    private Object poll(JsonNode request) {
        List<Object> records = new ArrayList<>();
        long deadline = System.currentTimeMillis() + request.get("for_ms").asLong();
        long leftMs = request.get("for_ms").asLong();
        while (leftMs > 0) {
            for (ConsumerRecord<String, String> each : member.poll(Duration.ofMillis(leftMs))) {
                records.add(Arrays.asList(each.partition(), each.offset(), each.value()));
            }
            leftMs = deadline - System.currentTimeMillis();
        }
        List<Object> assignment = member.assignment().stream()
            .map(each -> Arrays.<Object>asList(each.topic(), each.partition())).collect(Collectors.toList());
        return Map.of("records", records, "assignment", assignment);
    }

    private Object shareJoin(JsonNode request) {
        sharer = new KafkaShareConsumer<>(
            settings("group.id", request.get("group").asText(), "share.acknowledgement.mode", "explicit"),
            new StringDeserializer(), new StringDeserializer());
        sharer.subscribe(List.of(request.get("topic").asText()));
        return null;
    }

    private Object sharePoll(JsonNode request) {
        List<Object> records = new ArrayList<>();
        String type = request.get("acknowledge_type").asText().toUpperCase(Locale.ROOT);
        long deadline = System.currentTimeMillis() + request.get("for_ms").asLong();
        long leftMs = request.get("for_ms").asLong();
        while (leftMs > 0) {
            for (ConsumerRecord<String, String> each : sharer.poll(Duration.ofMillis(leftMs))) {
                records.add(Arrays.asList(each.offset(), each.value(), each.deliveryCount().get()));
                if (!type.isEmpty()) {
                    String its = request.path("others").path(String.valueOf(each.value())).asText(type);
                    sharer.acknowledge(each, AcknowledgeType.valueOf(its.toUpperCase(Locale.ROOT)));
                }
            }
            if (!records.isEmpty() && type.isEmpty()) {
                break;
            }
            sharer.commitSync().values().forEach(failure -> failure.ifPresent(error -> {
                throw error;
            }));
            leftMs = deadline - System.currentTimeMillis();
        }
        return records;
    }

    private Object transformStart(JsonNode request) {
        target = request.get("target").asText();
        producer = producer("transactional.id", request.get("transactional_id").asText());
        producer.initTransactions();
        member = consumer("group.id", request.get("group").asText(), "session.timeout.ms", TRANSFORM_SESSION_TIMEOUT_MS,
            "enable.auto.commit", false, "max.poll.records", 10);
        member.subscribe(List.of(request.get("source").asText()));
        return null;
    }

    private Object transformOnce(JsonNode request) throws Exception {
        ConsumerRecords<String, String> records = member.poll(IDLE);
        if (records.isEmpty()) {
            return 0;
        }
        producer.beginTransaction();
        at("begun", request);
        for (ConsumerRecord<String, String> each : records) {
            producer.send(new ProducerRecord<>(target, each.partition(), null, each.value() + "'"));
        }
        producer.flush();
        at("sent", request);
        producer.sendOffsetsToTransaction(records.nextOffsets(), member.groupMetadata());
        at("offsets", request);
        if (request.path("abort").asBoolean()) {
            producer.abortTransaction();
            for (TopicPartition partition : records.partitions()) {
                member.seek(partition, records.records(partition).get(0).offset());
            }
            return records.count();
        }
        at("committing", request);
        producer.commitTransaction();
        at("committed", request);
        return records.count();
    }

    private Object createTopic(JsonNode request) throws Exception {
        Map<String, String> configs = new HashMap<>();
        request.get("configs").fields().forEachRemaining(each -> configs.put(each.getKey(), each.getValue().asText()));
        NewTopic topic = new NewTopic(request.get("topic").asText(), request.get("partitions").asInt(), (short) 1);
        return done(admin().createTopics(List.of(topic.configs(configs))).all());
    }

    private Object describeTopic(String topic) throws Exception {
        int partitions = done(admin().describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions().size();
        return Map.of("partitions", partitions);
    }

    private Object describeConfigs(String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Map<String, String> found = new TreeMap<>();
        for (ConfigEntry each : done(admin().describeConfigs(List.of(resource)).all()).get(resource).entries()) {
            found.put(each.name(), each.value());
        }
        return found;
    }

    private Object alterConfig(JsonNode request) throws Exception {
        String name = request.get("name").asText();
        AlterConfigOp change = request.hasNonNull("value")
            ? new AlterConfigOp(new ConfigEntry(name, request.get("value").asText()), AlterConfigOp.OpType.SET)
            : new AlterConfigOp(new ConfigEntry(name, null), AlterConfigOp.OpType.DELETE);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, request.get("topic").asText());
        Map<ConfigResource, Collection<AlterConfigOp>> changes = Map.of(resource, List.of(change));
        return done(admin().incrementalAlterConfigs(changes).all());
    }

    private Object listOffsets(String topic) throws Exception {
        Map<Integer, List<Long>> found = new TreeMap<>();
        int partitions = done(admin().describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions().size();
        for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest())) {
            for (int number = 0; number < partitions; number++) {
                TopicPartition partition = new TopicPartition(topic, number);
                long offset = done(admin().listOffsets(Map.of(partition, spec)).partitionResult(partition)).offset();
                found.computeIfAbsent(number, each -> new ArrayList<>()).add(offset);
            }
        }
        return found;
    }

    private Object describeGroup(String group) throws Exception {
        var described = done(admin().describeConsumerGroups(List.of(group)).all()).get(group);
        GroupState state = described.groupState();
        return Map.of("state", state.toString().toUpperCase(Locale.ROOT), "members", described.members().size());
    }

    private Object groupOffsets(JsonNode request) throws Exception {
        String group = request.get("group").asText();
        List<TopicPartition> asked = new ArrayList<>();
        for (int number = 0; number < request.get("partitions").asInt(); number++) {
            asked.add(new TopicPartition(request.get("topic").asText(), number));
        }
        var specs = Map.of(group, new ListConsumerGroupOffsetsSpec().topicPartitions(asked));
        Map<Integer, Long> found = new TreeMap<>();
        done(admin().listConsumerGroupOffsets(specs).all()).get(group).forEach((partition, offset) -> {
            if (offset != null) {
                found.put(partition.partition(), offset.offset());
            }
        });
        return found;
    }

    private TopicPartition partition(JsonNode request) {
        return new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
    }

    private Object answer(String name, JsonNode request) throws Exception {
        String topic = request.path("topic").asText();
        String group = request.path("group").asText();
        switch (name) {
            case "produce": return produce(request);
            case "consume": return consume(request);
            case "join": return join(request);
            case "poll": return poll(request);
            case "leave": member.close(); return null;
            case "share_join": return shareJoin(request);
            case "share_poll": return sharePoll(request);
            case "share_leave": sharer.close(); return null;
            case "transform_start": return transformStart(request);
            case "transform_once": return transformOnce(request);
            case "create_topic": return createTopic(request);
            case "list_topics": return new TreeSet<>(done(admin().listTopics().names()));
            case "describe_topic": return describeTopic(topic);
            case "add_partitions":
                return done(admin().createPartitions(Map.of(topic, NewPartitions.increaseTo(request.get("total").asInt())))
                    .all());
            case "delete_topic": return done(admin().deleteTopics(List.of(topic)).all());
            case "describe_configs": return describeConfigs(topic);
            case "alter_config": return alterConfig(request);
            case "list_offsets": return listOffsets(topic);
            case "delete_records":
                return done(admin().deleteRecords(Map.of(partition(request),
                    RecordsToDelete.beforeOffset(request.get("before").asLong()))).all());
            case "list_groups":
                return done(admin().listGroups().all()).stream().map(each -> each.groupId()).sorted()
                    .collect(Collectors.toList());
            case "describe_group": return describeGroup(group);
            case "group_offsets": return groupOffsets(request);
            case "set_group_offset":
                return done(admin().alterConsumerGroupOffsets(group, Map.of(partition(request),
                    new OffsetAndMetadata(request.get("offset").asLong()))).all());
            case "delete_group_offset":
                return done(admin().deleteConsumerGroupOffsets(group, java.util.Set.of(partition(request))).all());
            case "delete_group": return done(admin().deleteConsumerGroups(List.of(group)).all());
            default: throw new UnsupportedOperationException(name);
        }
    }

    private void serve() throws Exception {
        say("hello", Map.of("client", "Java client", "version", AppInfoParser.getVersion(), "library", "",
            "codecs", List.of("none", "gzip", "snappy", "lz4", "zstd")));
        String line;
        while ((line = input.readLine()) != null) {
            JsonNode request = JSON.readTree(line);
            try {
                say("ok", answer(request.get("do").asText(), request));
            } catch (UnsupportedOperationException error) {
                say("not_offered", error.getMessage());
            } catch (ExecutionException error) {
                say("error", error.getCause().toString());
            } catch (Exception error) {
                say("error", error.toString());
            }
        }
        System.exit(0);
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Properties login = new Properties();
        if (arguments.length > 1) {
            try (Reader file = Files.newBufferedReader(Path.of(arguments[1]))) {
                login.load(file);
            }
        }
        new JavaClient(arguments[0], login, input).serve();
    }
}
