package storeclient

import java.io.ByteArrayInputStream
import java.nio.file.Files
import java.nio.file.Path
import java.security.KeyStore
import java.security.cert.CertificateFactory
import javax.net.ssl.SSLContext
import javax.net.ssl.TrustManagerFactory

/**
 * Secures the connections of a client. The certificate of a node is always checked against the host of its address.
 *
 * @property context context of the sockets: trusted authorities, and the client's own certificate
 */
public class Tls(internal val context: SSLContext) {
    public companion object {
        /** Trusts the certificate authorities of the Java runtime. */
        @JvmStatic
        public fun system(): Tls = Tls(SSLContext.getDefault())

        /** Trusts the certificate authorities in a PEM file, and no others. */
        @JvmStatic
        public fun trusting(authorities: Path): Tls {
            val found = CertificateFactory.getInstance("X.509").generateCertificates(ByteArrayInputStream(Files.readAllBytes(authorities)))
            require(found.isNotEmpty()) { "there is no certificate in $authorities" }
            val store = KeyStore.getInstance(KeyStore.getDefaultType())
            store.load(null, null)
            for ((n, one) in found.withIndex()) store.setCertificateEntry("authority $n", one)
            val trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm())
            trust.init(store)
            return Tls(SSLContext.getInstance("TLS").apply { init(null, trust.trustManagers, null) })
        }
    }
}
