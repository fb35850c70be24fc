//! The process that has an image open for writing: the cookie of its lock.
//!
//! A lock of RADOS outlives its owner. So the cookie tells enough to find out, on the same machine,
//! whether the owner still runs. On another machine this cannot be known.

use std::fmt;
use std::fs;
use std::path::Path;

use rustix::process::getpid;

/// The owner of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Name of its machine.
    pub host: String,
    /// Its process.
    pub process: u32,
    /// When the process began, in ticks since the start of the machine.
    started: u64,
    /// The namespace of the process number.
    namespace: String,
    /// This run of the machine.
    boot: String,
    /// The machine; empty if it has no identity.
    machine: String,
    /// Its term, if it is the owner of a volume in a cluster.
    pub term: Option<Term>,
}

/// The term of an owner of a volume in a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// Name of the volume in the cluster, without white space.
    pub volume: String,
    /// Number of the term.
    pub epoch: u64,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {}", self.process, self.host)
    }
}

impl Owner {
    /// This process.
    pub fn this_process() -> Owner {
        let process = getpid().as_raw_nonzero().get().cast_unsigned();
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        Owner {
            host: word(&name),
            process,
            started: start_of(process).unwrap_or(0),
            namespace: word(&link.to_string_lossy()),
            boot: line(Path::new("/proc/sys/kernel/random/boot_id")),
            machine: line(Path::new("/etc/machine-id")),
            term: None,
        }
    }

    /// The same process, as the owner of a volume in a cluster.
    #[must_use]
    pub fn in_term(self, term: Option<Term>) -> Owner {
        Owner { term, ..self }
    }

    /// The cookie for this owner.
    pub fn cookie(&self) -> String {
        let Owner { host, process, started, namespace, boot, machine, term } = self;
        let cookie = format!("{host} {process} {started} {namespace} {boot} {machine}");
        match term {
            Some(Term { volume, epoch }) => format!("{cookie} {volume} {epoch}"),
            None => cookie,
        }
    }

    /// The owner of a cookie. Of a cookie of another program nothing is known but its text.
    pub fn of_cookie(cookie: &str) -> Owner {
        let parts: Vec<&str> = cookie.split(' ').collect();
        let known = || {
            let ([host, process, started, namespace, boot, machine], rest) =
                parts.split_first_chunk()?;
            let term = match rest {
                [] => None,
                [volume, epoch] => {
                    Some(Term { volume: (*volume).to_owned(), epoch: epoch.parse().ok()? })
                }
                _ => return None,
            };
            Some(Owner {
                host: (*host).to_owned(),
                process: process.parse().ok()?,
                started: started.parse().ok()?,
                namespace: (*namespace).to_owned(),
                boot: (*boot).to_owned(),
                machine: (*machine).to_owned(),
                term,
            })
        };
        known().unwrap_or_else(|| Owner {
            host: format!("a machine that says '{}'", word(cookie)),
            process: 0,
            started: 0,
            namespace: String::new(),
            boot: String::new(),
            machine: String::new(),
            term: None,
        })
    }

    /// Whether this owner was deposed by the owner of this term: it has an earlier term of the same
    /// volume. An owner outside a cluster, or of another name, keeps the image.
    pub fn is_before(&self, term: &Term) -> bool {
        self.term.as_ref().is_some_and(|own| own.volume == term.volume && own.epoch < term.epoch)
    }

    /// Whether the owner surely runs no more, seen from `here`. That is so if it ran on this
    /// machine, and the machine has restarted since, or the process is gone.
    pub fn is_gone(&self, here: &Owner) -> bool {
        if self.boot.is_empty() || self.host != here.host || self.machine != here.machine {
            return false;
        }
        if self.boot != here.boot {
            return !self.machine.is_empty();
        }
        self.namespace == here.namespace && start_of(self.process) != Some(self.started)
    }
}

/// The text without what would end a word of the cookie.
fn word(text: &str) -> String {
    let kept = text.chars().filter(|c| c.is_ascii_graphic());
    kept.take(100).collect()
}

fn line(path: &Path) -> String {
    word(&fs::read_to_string(path).unwrap_or_default())
}

/// When a process began, in ticks since the start of the machine; `None` if there is none, or it
/// was killed. What a killed process has sent is kept out by the blocklist.
fn start_of(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program may hold anything, also brackets.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let runs = fields.next().is_some_and(|state| state != "Z" && state != "X");
    fields.nth(18).filter(|_| runs)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_names_its_owner() {
        let owner = Owner::this_process();
        assert_eq!(Owner::of_cookie(&owner.cookie()), owner);
        let term = |volume: &str, epoch| Term { volume: volume.to_owned(), epoch };
        let in_term = Owner { term: Some(term("home", 7)), ..owner.clone() };
        assert_eq!(Owner::of_cookie(&in_term.cookie()), in_term);
        assert!(in_term.is_before(&term("home", 8)) && !in_term.is_before(&term("home", 7)));
        assert!(!in_term.is_before(&term("other", 8)), "another name for the same image");
        assert!(!owner.is_before(&term("home", 8)), "outside a cluster");
        assert_eq!(Owner::of_cookie(&format!("{} x", owner.cookie())).process, 0);
        assert!(!owner.is_gone(&owner) && owner.started > 0 && !owner.boot.is_empty());
    }

    #[test]
    fn only_what_ran_here_can_be_gone() {
        let here = Owner { machine: "m".to_owned(), ..Owner::this_process() };
        let other = |change: fn(&mut Owner)| {
            let mut owner = here.clone();
            change(&mut owner);
            owner.is_gone(&here)
        };
        assert!(other(|owner| owner.started += 1), "another process has the number now");
        assert!(other(|owner| owner.process = u32::MAX), "there is no such process");
        assert!(other(|owner| owner.boot = "earlier".to_owned()), "the machine has restarted");
        assert!(!other(|owner| owner.host = "other".to_owned()));
        assert!(!other(|owner| (owner.machine = "n".to_owned(), owner.started += 1).1));
        assert!(!other(|owner| (owner.namespace = "n".to_owned(), owner.started += 1).1));
        assert!(!Owner::of_cookie("rbd's own").is_gone(&here));
        let nameless = Owner { machine: String::new(), ..here.clone() };
        let before = Owner { boot: "earlier".to_owned(), ..nameless.clone() };
        assert!(!before.is_gone(&nameless), "other machines have no identity either");
    }
}
