//! Options for etcd: its address and its certificates.

use std::path::PathBuf;

use steadfast_remote::EtcdAddress;
use steadfast_remote::server::TlsFiles;

/// Certificates for etcd.
#[derive(Debug, clap::Args)]
pub struct EtcdTls {
    /// Authorities (PEM): etcd must use TLS with a certificate from one of them
    #[arg(long, value_name = "FILE", requires = "etcd")]
    etcd_ca: Option<PathBuf>,
    /// Certificate for etcd (PEM), if etcd asks for one
    #[arg(long, value_name = "FILE", requires_all = ["etcd_ca", "etcd_key"])]
    etcd_cert: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,
}

impl EtcdTls {
    /// The certificate files, as the library takes them.
    pub fn files(&self) -> TlsFiles {
        TlsFiles {
            certificate: self.etcd_cert.clone(),
            key: self.etcd_key.clone(),
            authorities: self.etcd_ca.clone(),
        }
    }
}

/// The etcd cluster with these members, without the name of an array.
pub fn cluster(members: &[String], tls: &EtcdTls) -> EtcdAddress {
    EtcdAddress { tls: tls.files(), ..EtcdAddress::new(members.to_vec(), "") }
}
