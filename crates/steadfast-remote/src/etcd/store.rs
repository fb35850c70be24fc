//! [`Store`]: the operations that are needed of etcd.

/// Why a request to etcd failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No member answers in time. A change may still have been made.
    #[error("etcd does not answer: {0}")]
    Unreachable(String),
    /// etcd refuses the request.
    #[error("etcd refuses: {0}")]
    Refused(String),
    /// The answer is not one of etcd, or of no supported version.
    #[error("not an answer of etcd: {0}")]
    Garbled(String),
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Revision of its last change; never 0.
    pub revision: i64,
    /// The lease that it is bound to; 0 for none.
    pub lease: i64,
}

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Sets a key to a value, as long as the lease lives (0: permanently).
    Put(String, String, i64),
    /// Deletes a key.
    Delete(String),
}

/// Changes that are made together or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Revisions that keys must have; 0: the key must not exist.
    pub conditions: Vec<(String, i64)>,
    /// The changes to make if the conditions hold.
    pub changes: Vec<Change>,
}

/// Keys with revisions and leases.
pub trait Store {
    /// All entries with this prefix, at one revision, in the order of keys.
    ///
    /// # Errors
    /// [`StoreError`].
    fn get(&self, prefix: &str) -> Result<Vec<Entry>, StoreError>;

    /// Makes the changes if all conditions hold. Returns whether they held.
    ///
    /// # Errors
    /// [`StoreError`]. If no member answered, the changes may have been made.
    fn commit(&self, transaction: &Transaction) -> Result<bool, StoreError>;

    /// Creates a new lease.
    ///
    /// # Errors
    /// [`StoreError`].
    fn grant(&self, seconds: u64) -> Result<i64, StoreError>;

    /// Restarts a lease. `false` if it has ended.
    ///
    /// # Errors
    /// [`StoreError`].
    fn renew(&self, lease: i64) -> Result<bool, StoreError>;

    /// Ends a lease and deletes its keys.
    ///
    /// # Errors
    /// [`StoreError`].
    fn revoke(&self, lease: i64) -> Result<(), StoreError>;
}
