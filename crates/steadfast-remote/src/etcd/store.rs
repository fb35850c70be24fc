//! [`Store`]: what is needed of etcd.

/// Why etcd did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No member answers, or not in time. A change may have been made all the same.
    #[error("etcd does not answer: {0}")]
    Unreachable(String),
    /// It refuses.
    #[error("etcd refuses: {0}")]
    Refused(String),
    /// What answers is not etcd, or not one that we know.
    #[error("not an answer of etcd: {0}")]
    Garbled(String),
}

/// A key and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Of its last change; never 0.
    pub revision: i64,
    /// The lease that it goes with; 0 for none.
    pub lease: i64,
}

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The key has this value, as long as the lease lives (0: for good).
    Put(String, String, i64),
    /// There is no such key.
    Delete(String),
}

/// Changes that are made together, or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Revisions that keys must have; 0: there must be no such key.
    pub conditions: Vec<(String, i64)>,
    /// What is changed then.
    pub changes: Vec<Change>,
}

/// Keys with revisions and leases.
pub trait Store {
    /// Everything whose key begins with this, all at one revision, in the order of keys.
    ///
    /// # Errors
    /// [`StoreError`].
    fn get(&self, prefix: &str) -> Result<Vec<Entry>, StoreError>;

    /// Makes the changes if all conditions hold, and says whether they do.
    ///
    /// # Errors
    /// [`StoreError`]; where nobody has answered the changes may have been made.
    fn commit(&self, transaction: &Transaction) -> Result<bool, StoreError>;

    /// A lease that nobody else has.
    ///
    /// # Errors
    /// [`StoreError`].
    fn grant(&self, seconds: u64) -> Result<i64, StoreError>;

    /// Lets a lease run from the beginning. `false`: it has ended.
    ///
    /// # Errors
    /// [`StoreError`].
    fn renew(&self, lease: i64) -> Result<bool, StoreError>;

    /// Ends a lease, and its keys.
    ///
    /// # Errors
    /// [`StoreError`].
    fn revoke(&self, lease: i64) -> Result<(), StoreError>;
}
