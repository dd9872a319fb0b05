import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/** Kafka's StandardAuthorizer, asked by lines of JSON: bindings and questions in, one letter per question out. */
public class AclOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return ""; }
        public int correlationId() { return 0; }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(answer(JSON.readTree(line)));
            System.out.flush();
        }
    }

    private static String answer(JsonNode world) throws Exception {
        try (StandardAuthorizer authorizer = new StandardAuthorizer()) {
            authorizer.configure(Map.of("node.id", "1", "super.users", world.get("super_users").asText()));
            Map<Uuid, StandardAcl> acls = new HashMap<>();
            for (JsonNode each : world.get("bindings")) {
                acls.put(Uuid.randomUuid(), acl(each));
            }
            authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
            authorizer.loadSnapshot(acls);
            authorizer.completeInitialLoad();
            StringBuilder answers = new StringBuilder();
            for (JsonNode each : world.get("questions")) {
                answers.append(result(authorizer, each) == AuthorizationResult.ALLOWED ? 'A' : 'D');
            }
            return answers.toString();
        }
    }

    private static AuthorizationResult result(StandardAuthorizer authorizer, JsonNode asked) throws Exception {
        Context context = new Context(
            SecurityUtils.parseKafkaPrincipal(asked.get(0).asText()), InetAddress.getByName(asked.get(1).asText()));
        AclOperation operation = AclOperation.fromCode((byte) asked.get(2).asInt());
        ResourceType type = ResourceType.fromCode((byte) asked.get(3).asInt());
        if (asked.get(4).isNull()) {
            return authorizer.authorizeByResourceType(context, operation, type);
        }
        ResourcePattern resource = new ResourcePattern(type, asked.get(4).asText(), PatternType.LITERAL);
        return authorizer.authorize(context, List.of(new Action(operation, resource, 1, true, true))).get(0);
    }

    private static StandardAcl acl(JsonNode each) {
        return new StandardAcl(
            ResourceType.fromCode((byte) each.get(0).asInt()),
            each.get(1).asText(),
            PatternType.fromCode((byte) each.get(2).asInt()),
            each.get(3).asText(),
            each.get(4).asText(),
            AclOperation.fromCode((byte) each.get(5).asInt()),
            AclPermissionType.fromCode((byte) each.get(6).asInt()));
    }
}
