//! Reads certificates and keys from files for rustls.
//!
//! rustls has no external pre-shared keys, so only certificates are supported. The server shows
//! one. If a list of authorities is given, clients must show one of such an authority.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Files in PEM form.
#[derive(Debug, Clone, Default)]
pub struct TlsFiles {
    /// The certificate, and its chain to an authority.
    pub certificate: Option<PathBuf>,
    /// Private key of the certificate.
    pub key: Option<PathBuf>,
    /// Authorities that must have signed the peer's certificate.
    pub authorities: Option<PathBuf>,
}

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or its contents are wrong.
    #[error("{0}: {1}")]
    File(PathBuf, String),
    /// A required file was not named.
    #[error("no {0} is given")]
    Missing(&'static str),
    /// The certificate does not match the key, or cannot be used.
    #[error("the certificate cannot be used: {0}")]
    Unusable(String),
}

fn text(error: pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "nothing of the kind in this file".to_owned(),
        _ => "not in PEM form".to_owned(),
    }
}

pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let fail = |error| TlsError::File(path.to_owned(), text(error));
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(fail)?.collect();
    match found.map_err(fail)? {
        found if found.is_empty() => {
            Err(TlsError::File(path.to_owned(), "holds no certificate".to_owned()))
        }
        found => Ok(found),
    }
}

pub(crate) fn identity(
    files: &TlsFiles,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let certificate = files.certificate.as_deref().ok_or(TlsError::Missing("certificate"))?;
    let key = files.key.as_deref().ok_or(TlsError::Missing("key"))?;
    let chain = certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| TlsError::File(key.to_owned(), text(error)))?;
    Ok((chain, key))
}

pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| TlsError::File(path.to_owned(), error.to_string()))?;
    }
    Ok(roots)
}

pub(crate) fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// TLS configuration of a server. With authorities, clients without a certificate of theirs are
/// refused.
///
/// # Errors
/// [`TlsError`], one line each.
pub fn server_config(files: &TlsFiles) -> Result<Arc<rustls::ServerConfig>, TlsError> {
    let unusable = |error: String| TlsError::Unusable(error);
    let (chain, key) = identity(files)?;
    let builder = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?;
    let builder = match &files.authorities {
        Some(path) => {
            let roots = Arc::new(authorities(path)?);
            let verifier =
                rustls::server::WebPkiClientVerifier::builder_with_provider(roots, provider())
                    .build()
                    .map_err(|error| unusable(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let config =
        builder.with_single_cert(chain, key).map_err(|error| unusable(error.to_string()))?;
    Ok(Arc::new(config))
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, error)
    }
}
