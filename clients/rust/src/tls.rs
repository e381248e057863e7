//! TLS.

use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::errors::{Error, Result};

/// Options of TLS. The host name of a certificate is always checked.
///
/// ```no_run
/// # fn main() -> storenode::Result<()> {
/// let tls = storenode::Tls::new().ca(std::fs::read("ca.pem")?);
/// let client = storenode::Client::builder("db:8001").user("root", "...").tls(tls).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Tls {
    ca: Vec<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    server_name: Option<String>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

impl Tls {
    /// Return options that trust the certificate authorities of the system.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trust certificate authorities, in PEM, in the place of the system's.
    pub fn ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca.push(pem.into());
        self
    }

    /// Present a certificate of this client, with its key, both in PEM.
    pub fn identity(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Set the name that the certificate must have, in the place of the address's host.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    pub(crate) fn connector(&self) -> Result<Connector> {
        let mut roots = RootCertStore::empty();
        if self.ca.is_empty() {
            let found = rustls_native_certs::load_native_certs();
            let (added, _) = roots.add_parsable_certificates(found.certs);
            if added == 0 {
                let why = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
                return Err(Error::argument(format!("the system has no certificate authorities{why}")));
            }
        }
        for pem in &self.ca {
            for certificate in certificates(pem)? {
                roots.add(certificate).map_err(|error| Error::argument(format!("no authority: {error}")))?;
            }
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::argument(format!("no TLS: {error}")))?
            .with_root_certificates(roots);
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|error| Error::argument(format!("the key is not PEM: {error}")))?;
                builder
                    .with_client_auth_cert(certificates(certificate)?, key)
                    .map_err(|error| Error::argument(format!("no certificate of a client: {error}")))?
            }
        };
        let name = self.server_name.as_deref().map(server_name).transpose()?;
        Ok(Connector { connector: TlsConnector::from(Arc::new(config)), name })
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(Error::argument("the PEM text has no certificate")),
        Err(error) => Err(Error::argument(format!("the certificate is not PEM: {error}"))),
    }
}

fn server_name(name: &str) -> Result<ServerName<'static>> {
    ServerName::try_from(name.to_owned())
        .map_err(|_| Error::argument(format!("{name:?} is no name of a host")))
}

/// Makes secured connections.
#[derive(Clone)]
pub(crate) struct Connector {
    connector: TlsConnector,
    name: Option<ServerName<'static>>,
}

impl Connector {
    pub(crate) async fn connect(&self, host: &str, socket: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => server_name(host).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
        };
        self.connector.connect(name, socket).await
    }
}

/// Return random bytes as hexadecimal digits.
pub(crate) fn random_name() -> Result<String> {
    let provider: CryptoProvider = ring::default_provider();
    let mut bytes = [0; 16];
    if provider.secure_random.fill(&mut bytes).is_err() {
        return Err(io::Error::other("the system gives no random bytes").into());
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
