//! [`Gateway`]: etcd (3.4 and later) through the JSON gateway that every member offers beside gRPC.
//!
//! Members are asked in turn, beginning with the one that answered last. If the first member may
//! have made a change, asking another one to make it is safe. A transaction names the revisions
//! that it was decided on, so it is made at most once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use super::store::{Entry, Store, StoreError, Transaction};
use super::wire;
use crate::server::{TlsError, TlsFiles, tls_certificates, tls_provider};

/// Default port of etcd.
const PORT: u16 = 2379;
/// Longest answer, bytes.
const ANSWER_MAX: u64 = 16 << 20;
/// The gRPC codes "unavailable", "deadline exceeded" and "aborted": another member may succeed.
const PASSING: [i64; 3] = [14, 4, 10];
/// The gRPC code "not found".
const NOT_FOUND: i64 = 5;

/// The members of an etcd cluster.
pub struct Gateway {
    agent: ureq::Agent,
    /// `http://host:port/v3/` of each.
    members: Vec<String>,
    /// Index of the member that answered last.
    last: AtomicUsize,
}

/// Result of asking one member.
enum MemberAnswer {
    Answer(Vec<u8>),
    /// No usable answer: the next member is asked.
    Nothing(String),
    Refused(wire::ErrorAnswer),
}

impl Gateway {
    /// Members at these addresses (`host` or `host:port`); with authorities they must use TLS. No
    /// connection is made yet.
    ///
    /// # Errors
    /// A certificate or key is unusable.
    pub fn new(places: &[String], tls: &TlsFiles, patience: Duration) -> Result<Gateway, TlsError> {
        let mut config = ureq::Agent::config_builder()
            // Environment variables and servers cannot redirect requests.
            .proxy(None)
            .max_redirects(0)
            .http_status_as_error(false)
            .timeout_global(Some(patience));
        let scheme = match &tls.authorities {
            Some(_) => {
                config = config.tls_config(tls_config(tls)?);
                "https"
            }
            None => "http",
        };
        let members =
            places.iter().map(|place| format!("{scheme}://{}/v3/", with_port(place))).collect();
        Ok(Gateway { agent: config.build().into(), members, last: AtomicUsize::new(0) })
    }

    fn ask_one(&self, member: &str, path: &str, body: &[u8]) -> MemberAnswer {
        let request =
            self.agent.post(format!("{member}{path}")).header("content-type", "application/json");
        let answer = request.send(body).and_then(|mut response| {
            let bytes = response.body_mut().with_config().limit(ANSWER_MAX).read_to_vec()?;
            Ok((response.status(), bytes))
        });
        match answer {
            Err(error) => MemberAnswer::Nothing(format!("{member}: {error}")),
            Ok((status, bytes)) if status.is_success() => MemberAnswer::Answer(bytes),
            Ok((status, bytes)) => match wire::parse::<wire::ErrorAnswer>(&bytes) {
                Ok(refusal) if !PASSING.contains(&refusal.code) => MemberAnswer::Refused(refusal),
                Ok(refusal) => MemberAnswer::Nothing(format!("{member}: {}", refusal.error)),
                Err(_) => MemberAnswer::Nothing(format!("{member}: status {status}")),
            },
        }
    }

    fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<Result<T, wire::ErrorAnswer>, StoreError> {
        let body = body.to_string();
        let first = self.last.load(Ordering::Relaxed);
        let mut why = "no member is given".to_owned();
        for turn in 0..self.members.len() {
            let index = (first + turn) % self.members.len();
            let Some(member) = self.members.get(index) else { continue };
            match self.ask_one(member, path, body.as_bytes()) {
                MemberAnswer::Answer(bytes) => {
                    self.last.store(index, Ordering::Relaxed);
                    return wire::parse(&bytes).map(Ok);
                }
                MemberAnswer::Refused(refusal) => return Ok(Err(refusal)),
                MemberAnswer::Nothing(text) => why = text,
            }
        }
        Err(StoreError::Unreachable(why))
    }

    fn insist<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, StoreError> {
        self.ask(path, body)?.map_err(|refusal| StoreError::Refused(refusal.error))
    }
}

impl Store for Gateway {
    fn get(&self, prefix: &str) -> Result<Vec<Entry>, StoreError> {
        self.insist::<wire::RangeAnswer>("kv/range", &wire::range(prefix))?.entries()
    }

    fn commit(&self, transaction: &Transaction) -> Result<bool, StoreError> {
        let answer: wire::TransactionAnswer =
            self.insist("kv/txn", &wire::transaction(transaction))?;
        Ok(answer.succeeded)
    }

    fn grant(&self, seconds: u64) -> Result<i64, StoreError> {
        let answer: wire::GrantAnswer =
            self.insist("lease/grant", &json!({ "TTL": seconds.to_string() }))?;
        Ok(answer.id)
    }

    fn renew(&self, lease: i64) -> Result<bool, StoreError> {
        let answer: wire::RenewAnswer =
            self.insist("lease/keepalive", &json!({ "ID": lease.to_string() }))?;
        Ok(answer.result.ttl > 0)
    }

    fn revoke(&self, lease: i64) -> Result<(), StoreError> {
        match self.ask::<wire::RevokeAnswer>("lease/revoke", &json!({ "ID": lease.to_string() }))? {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.code == NOT_FOUND => Ok(()),
            Err(refusal) => Err(StoreError::Refused(refusal.error)),
        }
    }
}

/// The member with a port, by default that of etcd.
fn with_port(place: &str) -> String {
    match place.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => place.to_owned(),
        _ => format!("{place}:{PORT}"),
    }
}

fn tls_config(files: &TlsFiles) -> Result<TlsConfig, TlsError> {
    let path = files.authorities.as_deref().ok_or(TlsError::Missing("list of authorities"))?;
    let own = |found: &CertificateDer<'static>| Certificate::from_der(found).to_owned();
    let roots: Vec<Certificate<'static>> = tls_certificates(path)?.iter().map(own).collect();
    let client = match files.certificate {
        Some(ref certificate) => {
            let path = files.key.as_deref().ok_or(TlsError::Missing("key"))?;
            let wrong = |why: String| TlsError::File(path.to_owned(), why);
            let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
            let key = PrivateKey::from_pem(&bytes)
                .map_err(|_| wrong("holds no key in PEM form".to_owned()))?;
            let chain: Vec<Certificate<'static>> =
                tls_certificates(certificate)?.iter().map(own).collect();
            Some(ClientCert::new_with_certs(&chain, key))
        }
        None => None,
    };
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .client_cert(client)
        .unversioned_rustls_crypto_provider(tls_provider())
        .build())
}

#[cfg(test)]
#[path = "gateway_tests.rs"]
mod tests;
