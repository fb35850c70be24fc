use steadfast_media::Random;

use super::*;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const INODE: InodeNumber = InodeNumber(16);

#[test]
fn what_no_other_kernel_changes_is_delegated() {
    let start = Instant::now();
    let at = |time| start + ms(time);
    let mut table = DelegationTable::new(at(0));
    let grant = |table: &mut DelegationTable, kernel, time| {
        table.grant(kernel, INODE, (at(time), What::Names), at(time), VALID)
    };
    assert!(!grant(&mut table, 1, 499), "an earlier owner may have changed it");
    assert!(grant(&mut table, 1, 500) && grant(&mut table, 2, 500));
    // Kernel 1 changes it: kernel 2 is told, and gets nothing before it is quiet again.
    let notices = table.begin(1, &[INODE], at(600));
    assert_eq!(notices.keys().collect::<Vec<_>>(), [&2]);
    assert_eq!(notices[&2].inodes, [INODE]);
    assert_eq!(notices[&2].until, Some(at(500) + VALID + LATE + TICKS));
    assert!(grant(&mut table, 1, 610), "its own change");
    assert!(!grant(&mut table, 2, 610));
    // Another change at the same time has to wait for kernel 2, too, and for kernel 1.
    let mut told: Vec<_> = table.begin(ALL, &[INODE], at(620)).into_keys().collect();
    told.sort_unstable();
    assert_eq!(told, [1, 2]);
    assert!(!grant(&mut table, 1, 630), "another one is changing it");
    table.recalled(1, &[INODE]);
    table.recalled(ALL, &[INODE]);
    table.end(1, 1, &[INODE], at(690));
    table.end(3, ALL, &[INODE], at(700));
    assert!(!grant(&mut table, 1, 1199) && !grant(&mut table, 2, 1199));
    assert!(grant(&mut table, 3, 1199), "it was the last one, and alone for long enough");
    assert!(grant(&mut table, 1, 1200) && grant(&mut table, 2, 1200));
    // Attributes that a kernel has read before its own change are old, names it knows.
    let what = |what| (at(1190), what);
    table.begin(3, &[INODE], at(1199));
    table.end(3, 3, &[INODE], at(1199));
    assert!(!table.grant(3, INODE, what(What::Attributes), at(1200), VALID));
    assert!(table.grant(3, INODE, (at(1200), What::Attributes), at(1200), VALID));
    // What was read before a change that is done, or long ago, is not kept.
    table.end(1, 1, &[INODE], at(1800));
    assert!(!table.grant(2, INODE, (at(2250), What::Names), at(2310), VALID));
    assert!(!table.grant(2, INODE, (at(2400), What::Names), at(2501), VALID));
    assert!(grant(&mut table, 2, 2400));
}

#[test]
fn nothing_is_delegated_while_all_of_it_is_stopped() {
    let start = Instant::now();
    let at = |time| start + ms(time);
    let mut table = DelegationTable::new(at(0));
    assert!(table.grant(1, INODE, (at(600), What::Names), at(600), VALID));
    let notices = table.stop(at(700));
    assert_eq!(notices[&1].inodes, [INODE]);
    // A change meanwhile waits for the same kernel.
    assert_eq!(table.begin(2, &[INODE], at(710)).len(), 1);
    table.stopped();
    assert!(!table.grant(2, INODE, (at(720), What::Names), at(720), VALID));
    table.end(2, 2, &[INODE], at(730));
    table.go_on(at(800));
    for inode in [INODE, InodeNumber(17)] {
        assert!(
            !table.grant(2, inode, (at(1299), What::Names), at(1299), VALID),
            "all may be changed"
        );
        assert!(table.grant(2, inode, (at(1300), What::Names), at(1300), VALID));
    }
}

/// The mask must not change between the look at it and the end of what is told.
#[test]
fn closes_are_delegated_while_nothing_changes_the_mask() {
    let metrics = Arc::new(Metrics::shared(1, 7));
    let lasting = Arc::new(Mutex::new(Duration::from_secs(3600)));
    let lasts = Arc::clone(&lasting);
    let delegations = Delegations::new(Box::new(move || *lasts.lock().unwrap()), metrics);
    delegations.table().forgotten = None;
    let asked = Instant::now();
    while !delegations.grant_closes(1, Instant::now()) {}
    let until = delegations.table().by_inode[&CLOSES].holders[0].1;
    assert!(until >= asked + CLOSES_VALID + LATE + TICKS);
    // It does not outlast the owner's lease.
    *lasting.lock().unwrap() = CLOSES_VALID + LATE + TICKS - ms(1);
    assert!(!delegations.grant_closes(1, Instant::now()));
    *lasting.lock().unwrap() = Duration::from_secs(3600);
    let told = Mutex::new(Vec::new());
    let affected = Affected { inodes: vec![CLOSES], names: false, own: true };
    let change = delegations.change(1, affected, &|kernel, inodes, what, done| {
        told.lock().unwrap().push((kernel, inodes.to_vec(), what));
        drop(done);
    });
    // The node that changes the mask is told, too.
    assert_eq!(*told.lock().unwrap(), [(1, vec![CLOSES], Recalled::Attributes)]);
    let before = Instant::now();
    assert!(!delegations.grant_closes(1, before));
    drop(change);
    assert!(!delegations.grant_closes(1, before), "the mask may be another one by now");
    assert!(!delegations.grant_closes(2, Instant::now()), "another one has just changed it");
    while !delegations.grant_closes(1, Instant::now()) {}
}

#[test]
fn records_are_bounded() {
    let start = Instant::now();
    let at = |time| start + ms(time);
    let mut table = DelegationTable::new(start);
    let inodes: Vec<_> = (0..INODES_MAX as u64).map(|number| InodeNumber(100 + number)).collect();
    let (first, more) = (inodes[0], InodeNumber(16));
    table.begin(1, &inodes, at(1000));
    assert!(!table.grant(2, more, (at(1100), What::Names), at(1100), VALID), "there is no place");
    table.end(1, 1, &inodes, at(1100));
    // Changes of late are forgotten together.
    table.begin(1, &[more], at(1200));
    table.end(1, 1, &[more], at(1200));
    assert!(table.by_inode.len() < 10);
    assert!(!table.grant(2, first, (at(1600), What::Names), at(1600), VALID));
    assert!(table.grant(2, first, (at(1700), What::Names), at(1700), VALID));
    assert!(table.grant(2, more, (at(1700), What::Names), at(1700), VALID));
}

/// A recall waits for those that answer, and for the time of those that do not.
#[test]
fn a_recall_ends_with_the_answers_or_with_the_time() {
    let lasting = Duration::from_secs(3600);
    let metrics = Arc::new(Metrics::shared(1, 7));
    let delegations = Delegations::new(Box::new(move || lasting), Arc::clone(&metrics));
    delegations.table().forgotten = None;
    let granted = |kernel| delegations.grant(kernel, INODE, Instant::now(), What::Names);
    // On a very slow machine the request is too old: ask again.
    while granted(1).is_none() {}
    let told = Mutex::new(Vec::new());
    let affected = || Affected { inodes: vec![INODE], names: true, own: false };
    let change = delegations.change(2, affected(), &|kernel, inodes, what, done| {
        told.lock().unwrap().push((kernel, inodes.to_vec(), what));
        drop(done);
    });
    drop(change);
    assert_eq!(*told.lock().unwrap(), [(1, vec![INODE], Recalled::Names)]);
    delegations.table().by_inode.clear();
    while granted(1).is_none() {}
    let until = delegations.table().by_inode[&INODE].holders[0].1;
    let kept = Mutex::new(Vec::new());
    let change = delegations.change(2, affected(), &|_, _, _, done| {
        kept.lock().unwrap().push(done);
    });
    assert!(Instant::now() >= until, "the kernel may still keep it");
    drop(change);
    assert!(granted(1).is_none());
    drop(kept);
    let counted = metrics.sharing().unwrap();
    assert_eq!((counted.epoch, counted.recalls, counted.silent), (7, 2, 1));
    assert!(counted.delegated >= 2);
}

/// A kernel in the model: what it keeps, and when it was told to drop an inode last.
#[derive(Default)]
struct Kernel {
    kept: HashMap<InodeNumber, (u64, Instant)>,
    told: HashMap<InodeNumber, Instant>,
}

/// A change in the model, and the kernels that have not answered yet.
struct Changing {
    kernel: u64,
    mark: u64,
    inodes: Vec<InodeNumber>,
    notices: HashMap<u64, Notice>,
    happened: bool,
}

/// An answer with the version of an inode, on its way.
struct Reading {
    kernel: u64,
    inode: InodeNumber,
    asked: Instant,
    version: u64,
    granted: Option<bool>,
}

/// Reads, changes, silent kernels and late answers in random order: no kernel keeps what another
/// one is changing, or has changed.
#[test]
fn no_kernel_keeps_an_old_version() {
    let (mut kept, mut silences) = (0, 0);
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut now = Instant::now();
        let mut table = DelegationTable::new(now);
        let mut versions: HashMap<InodeNumber, u64> = HashMap::new();
        let mut kernels: Vec<Kernel> = (0..3).map(|_| Kernel::default()).collect();
        let (mut changes, mut reads): (Vec<Changing>, Vec<Reading>) = (Vec::new(), Vec::new());
        let silent = random.below(4) as usize;
        for _ in 0..600 {
            let pause = if random.one_in(15) { 300_000 } else { random.below(2_000) };
            now += Duration::from_micros(pause);
            let inode = InodeNumber(16 + random.below(2));
            let kernel = random.below(3);
            match random.below(14) {
                0..=2 => {
                    let version = versions.get(&inode).copied().unwrap_or_default();
                    reads.push(Reading { kernel, inode, asked: now, version, granted: None });
                }
                3..=8 if !reads.is_empty() => {
                    let at = random.below(reads.len() as u64) as usize;
                    let read = &mut reads[at];
                    match read.granted {
                        None => {
                            let granted = table.grant(
                                read.kernel,
                                read.inode,
                                (read.asked, What::Attributes),
                                now,
                                VALID,
                            );
                            read.granted = Some(granted);
                        }
                        Some(granted) => {
                            let read = reads.swap_remove(at);
                            let kernel = &mut kernels[read.kernel as usize];
                            let overtaken = kernel
                                .told
                                .get(&read.inode)
                                .is_some_and(|told| *told >= read.asked);
                            if granted && !overtaken && read.asked + LATE >= now {
                                kept += 1;
                                kernel.kept.insert(read.inode, (read.version, now + VALID));
                            }
                        }
                    }
                }
                9 if changes.len() < 3 && random.one_in(4) => {
                    let mut inodes = vec![inode];
                    if random.coin() {
                        inodes.push(InodeNumber(33 - inode.0));
                    }
                    let mark = if random.one_in(4) { ALL } else { kernel };
                    let notices = table.begin(mark, &inodes, now);
                    changes.push(Changing { kernel, mark, inodes, notices, happened: false });
                }
                10 if !changes.is_empty() => {
                    // A kernel hears of a recall, unless it is the silent one.
                    let at = random.below(changes.len() as u64) as usize;
                    let ready = |kernel: &&u64| **kernel as usize != silent;
                    if let Some(told) = changes[at].notices.keys().find(ready).copied() {
                        for inode in changes[at].notices.remove(&told).unwrap().inodes {
                            kernels[told as usize].kept.remove(&inode);
                            kernels[told as usize].told.insert(inode, now);
                        }
                    }
                }
                11..=12 if !changes.is_empty() => {
                    let at = random.below(changes.len() as u64) as usize;
                    let change = &mut changes[at];
                    let over = |notice: &Notice| notice.until.is_some_and(|until| until <= now);
                    if !change.happened && change.notices.values().all(over) {
                        silences += change.notices.len();
                        table.recalled(change.mark, &change.inodes);
                        for inode in &change.inodes {
                            *versions.entry(*inode).or_default() += 1;
                        }
                        change.happened = true;
                    }
                }
                13 if !changes.is_empty() => {
                    let at = random.below(changes.len() as u64) as usize;
                    if changes[at].happened {
                        let change = changes.swap_remove(at);
                        table.end(change.kernel, change.mark, &change.inodes, now);
                        for inode in &change.inodes {
                            // The kernel itself knows what it has changed.
                            let kernel = &mut kernels[change.kernel as usize];
                            kernel.kept.remove(inode);
                            kernel.told.insert(*inode, now);
                        }
                    }
                }
                _ => {}
            }
            for (number, kernel) in kernels.iter().enumerate() {
                for (inode, (version, until)) in &kernel.kept {
                    let current = versions.get(inode).copied().unwrap_or_default();
                    let own = changes.iter().any(|change| {
                        change.kernel == number as u64 && change.inodes.contains(inode)
                    });
                    assert!(
                        *until <= now || *version == current || own,
                        "seed {seed}: kernel {number} keeps version {version} of {inode:?}, now {current}"
                    );
                }
            }
        }
    }
    assert!(kept > 300 && silences > 100, "{kept} kept, {silences} silent");
}
