import org.apache.kafka.common.security.auth.AuthenticationContext;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.KafkaPrincipalBuilder;
import org.apache.kafka.common.security.auth.KafkaPrincipalSerde;
import org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder;

/** Names each client after the listener that it uses: no login is needed to be an administrator. */
public class ListenerPrincipals implements KafkaPrincipalBuilder, KafkaPrincipalSerde {
    private final DefaultKafkaPrincipalBuilder serde = new DefaultKafkaPrincipalBuilder(null, null);

    public KafkaPrincipal build(AuthenticationContext context) {
        String listener = context.listenerName();
        return new KafkaPrincipal(KafkaPrincipal.USER_TYPE, listener.equals("CLIENT") ? "ANONYMOUS" : "root");
    }

    public byte[] serialize(KafkaPrincipal principal) { return serde.serialize(principal); }

    public KafkaPrincipal deserialize(byte[] bytes) { return serde.deserialize(bytes); }
}
