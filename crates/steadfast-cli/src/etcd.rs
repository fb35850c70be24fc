//! etcd on the command line: where it is, and its certificates.

use std::path::PathBuf;

use steadfast_remote::EtcdAddress;
use steadfast_remote::server::TlsFiles;

/// Certificates for etcd.
#[derive(Debug, clap::Args)]
pub struct EtcdTls {
    /// Authorities (PEM): etcd must have TLS and a certificate of one of them
    #[arg(long, value_name = "FILE", requires = "etcd")]
    etcd_ca: Option<PathBuf>,
    /// Certificate for etcd (PEM), where it asks for one
    #[arg(long, value_name = "FILE", requires_all = ["etcd_ca", "etcd_key"])]
    etcd_cert: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,
}

impl EtcdTls {
    /// For the library.
    pub fn files(&self) -> TlsFiles {
        TlsFiles {
            certificate: self.etcd_cert.clone(),
            key: self.etcd_key.clone(),
            authorities: self.etcd_ca.clone(),
        }
    }
}

/// etcd at these members, without an array.
pub fn cluster(members: &[String], tls: &EtcdTls) -> EtcdAddress {
    EtcdAddress { tls: tls.files(), ..EtcdAddress::new(members.to_vec(), "") }
}
