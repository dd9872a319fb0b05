import java.util.Set;
import org.apache.kafka.common.security.auth.AuthenticationContext;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.KafkaPrincipalBuilder;
import org.apache.kafka.common.security.auth.KafkaPrincipalSerde;
import org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder;

/** Makes each client of an internal listener an administrator, without a login. */
public class ListenerPrincipals implements KafkaPrincipalBuilder, KafkaPrincipalSerde {
    private static final Set<String> INTERNAL = Set.of("ADMIN", "CONTROLLER");
    private final DefaultKafkaPrincipalBuilder serde = new DefaultKafkaPrincipalBuilder(null, null);

    public KafkaPrincipal build(AuthenticationContext context) {
        boolean isInternal = INTERNAL.contains(context.listenerName());
        return isInternal ? new KafkaPrincipal(KafkaPrincipal.USER_TYPE, "root") : serde.build(context);
    }

    public byte[] serialize(KafkaPrincipal principal) { return serde.serialize(principal); }

    public KafkaPrincipal deserialize(byte[] bytes) { return serde.deserialize(bytes); }
}
