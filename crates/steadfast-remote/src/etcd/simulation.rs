//! Several clients make, open, move and release arrays in one store, driven by a seed. Replies are
//! lost, requests never arrive, leases end, and another client interferes between any two steps.
//! The invariants are checked after every operation.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::claims::{self, Client, list};
use super::fake::Fake;
use super::hold::Hold;
use super::ownership;
use super::records::{OwnerRecord, RELEASED_PREFIX, ServerRecord, server_key, text};
use super::store::{Change, Store, Transaction};
use super::{EtcdError, registration};

const SERVERS: u64 = 5;
const SIZE: u64 = 100;
const QUOTA: u64 = 40;

/// The beliefs of all clients.
#[derive(Default)]
struct World {
    /// Every hold that a client was given, newest last.
    holds: Vec<(Hold, Client)>,
    /// The newest token that was given out, by identity.
    tokens: BTreeMap<String, u32>,
    arrays_made: u64,
    moved: u64,
    fenced: u64,
    refused: u64,
}

fn client(store: &Fake<'_>, number: u64) -> Client {
    let lease = store.grant(10).unwrap();
    Client { lease, owner: OwnerRecord { host: format!("host{number}"), process: 1 } }
}

fn server(store: &Fake<'_>, number: u64) -> Result<(), EtcdError> {
    let record =
        ServerRecord { address: format!("10.0.0.{number}:1"), size: SIZE, quota: QUOTA, used: 0 };
    let lease = store.grant(10)?;
    registration::register(store, &format!("s{number}"), &record, lease)
}

impl World {
    fn given(&mut self, hold: Hold, client: Client) -> Result<(), String> {
        let newest = self.tokens.entry(hold.uuid.clone()).or_default();
        if hold.token <= *newest {
            return Err(format!("{hold:?} was given after token {newest}"));
        }
        *newest = hold.token;
        self.holds.push((hold, client));
        Ok(())
    }
}

/// Runs one operation of a client.
fn operate(store: &Fake<'_>, world: &RefCell<World>) -> Result<(), String> {
    let name = format!("a{}", store.below(4));
    let number = store.below(1000);
    let held = {
        let world = world.borrow();
        let index = store.below(world.holds.len() as u64) as usize;
        world.holds.get(index).cloned()
    };
    let result = match (store.below(10), held) {
        (0 | 1, _) => {
            let (client, uuid) =
                (client(store, number), format!("uuid{}", client(store, number).lease));
            let count = 1 + store.below(3) as usize;
            claims::create(store, &name, &uuid, "parity", count, &client).map(|record| {
                world.borrow_mut().arrays_made += 1;
                Some((Hold::of(&name, &record), client))
            })
        }
        (2 | 3, _) => {
            let client = client(store, number);
            let takeover = store.below(2) == 0;
            ownership::take(store, &name, &client, takeover)
                .map(|record| Some((Hold::of(&name, &record), client)))
        }
        (4, Some((hold, _))) => {
            let epoch = store.below(1 << 40);
            let noted = ownership::note(store, &hold, (hold.token.into(), epoch));
            let newest = world.borrow().tokens.get(&hold.uuid).copied();
            // Another client may act between the steps, but not before them.
            if noted.is_ok() && store.others.get() == 0 && newest != Some(hold.token) {
                return Err(format!(
                    "{hold:?} could note an epoch although there is token {newest:?}"
                ));
            }
            noted.map(|()| None)
        }
        (5 | 6, Some((hold, _))) => {
            let member = store.below(3) as usize;
            let from = format!("s{}", store.below(SERVERS));
            claims::replace(store, &hold, member, &from).map(|place| {
                world.borrow_mut().moved += u64::from(place.is_some());
                None
            })
        }
        (7, Some((hold, client))) => ownership::keep(store, &hold, &client).map(|()| None),
        (8, Some((hold, client))) => {
            store.end(client.lease);
            match store.below(2) {
                0 => claims::release(store, &hold).map(|()| None),
                _ => Ok(None),
            }
        }
        _ => server(store, store.below(SERVERS)).map(|()| None),
    };
    let mut world = world.borrow_mut();
    match result {
        Ok(Some((hold, client))) => world.given(hold, client),
        Ok(None) => Ok(()),
        Err(EtcdError::Garbled(what)) => Err(format!("garbled: {what}")),
        Err(EtcdError::Fenced(_)) => {
            world.fenced += 1;
            Ok(())
        }
        Err(_) => {
            world.refused += 1;
            Ok(())
        }
    }
}

/// Checks the invariants.
fn judge(store: &Fake<'_>) -> Result<(), String> {
    let silent = store.silent.replace(0);
    let others = store.others.replace(0);
    let listing = list(store).map_err(|error| error.to_string());
    store.silent.set(silent);
    store.others.set(others);
    let listing = listing?;
    let mut claimed: BTreeMap<(String, usize), String> = BTreeMap::new();
    for (name, server) in &listing.servers {
        let sum: u64 = server.claims.value.values().map(|claim| claim.size).sum();
        if sum > SIZE {
            return Err(format!("{sum} bytes are claimed of server {name}"));
        }
        for (array, claim) in &server.claims.value {
            if claimed.insert((array.clone(), claim.member), name.clone()).is_some() {
                return Err(format!(
                    "member {} of {array} has claims on two servers",
                    claim.member
                ));
            }
        }
    }
    for (name, array) in &listing.arrays {
        for (member, place) in array.value.members.iter().enumerate() {
            let server = claimed.remove(&(name.clone(), member));
            if server.as_deref() != Some(&place.server) {
                return Err(format!(
                    "member {member} of {name} is on {} and claims {server:?}",
                    place.server
                ));
            }
        }
    }
    match claimed.pop_first() {
        Some((left, server)) => {
            Err(format!("{left:?} is claimed of {server}, but no client claimed it"))
        }
        None => Ok(()),
    }
}

fn run(seed: u64) -> Result<(World, u64), String> {
    let world = RefCell::new(World::default());
    let trouble = RefCell::new(None);
    {
        let store = Fake::new(seed);
        (0..SERVERS)
            .try_for_each(|number| server(&store, number))
            .map_err(|error| error.to_string())?;
        store.silent.set(if seed.is_multiple_of(3) { 0 } else { 10 });
        store.others.set(if seed.is_multiple_of(4) { 0 } else { 40 });
        *store.other.borrow_mut() = Some(Box::new(|store| {
            if let Err(what) = operate(store, &world) {
                trouble.borrow_mut().get_or_insert(what);
            }
        }));
        for _ in 0..400 {
            operate(&store, &world)?;
            if let Some(what) = trouble.borrow_mut().take() {
                return Err(what);
            }
            judge(&store)?;
        }
        let silences = store.silences.get();
        drop(store);
        Ok((world.into_inner(), silences))
    }
}

#[test]
fn claims_and_tokens_agree_whoever_comes_in_between() {
    let (mut made, mut moved, mut fenced, mut refused, mut silences) = (0, 0, 0, 0, 0);
    for seed in 0..60 {
        let (world, silent) = run(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        made += world.arrays_made;
        moved += world.moved;
        fenced += world.fenced;
        refused += world.refused;
        silences += silent;
    }
    println!("made {made}, moved {moved}, fenced {fenced}, refused {refused}, silences {silences}");
    // The test is useful only if all of these events occur.
    assert!(made > 200 && moved > 100 && fenced > 500 && refused > 500 && silences > 500);
}

#[test]
fn a_record_of_somebody_else_is_an_error() {
    let store = Fake::new(1);
    for (key, value) in [("steadfast/1/arrays/x", "{"), ("steadfast/1/servers/x", "[]")] {
        let changes = vec![Change::Put(key.to_owned(), value.to_owned(), 0)];
        assert_eq!(store.commit(&Transaction { conditions: Vec::new(), changes }), Ok(true));
        assert_eq!(list(&store).unwrap_err(), EtcdError::Garbled(key.to_owned()));
        let changes = vec![Change::Delete(key.to_owned())];
        assert_eq!(store.commit(&Transaction { conditions: Vec::new(), changes }), Ok(true));
    }
    assert!(list(&store).unwrap().arrays.is_empty());
}

#[test]
fn a_name_is_one_servers_until_its_lease_ends() {
    let store = Fake::new(2);
    let record =
        |port: u16| ServerRecord { address: format!("h:{port}"), size: 1, quota: 1, used: 0 };
    let (first, second) = (store.grant(10).unwrap(), store.grant(10).unwrap());
    registration::register(&store, "x", &record(1), first).unwrap();
    let refused = registration::register(&store, "x", &record(2), second).unwrap_err();
    assert_eq!(refused, EtcdError::NameTaken("x".to_owned(), "h:1".to_owned()));
    // A restart at the same address need not wait.
    registration::register(&store, "x", &record(1), second).unwrap();
    assert_eq!(list(&store).unwrap().servers["x"].registered.lease, second);
    store.end(second);
    assert!(list(&store).unwrap().servers.is_empty());
    registration::register(&store, "x", &record(2), store.grant(10).unwrap()).unwrap();
    let changes = vec![Change::Put(server_key("x"), text(&record(3)), 0)];
    assert_eq!(store.commit(&Transaction { conditions: Vec::new(), changes }), Ok(true));
}

#[test]
fn servers_are_chosen_on_machines_of_their_own_and_by_room() {
    let store = Fake::new(3);
    for (name, address, size) in [
        ("a", "h1:1", 100),
        ("b", "h1:2", 90),
        ("c", "h2:1", 50),
        ("d", "h3:1", 39),
        ("e", "h2:2", 60),
    ] {
        let record = ServerRecord { address: address.to_owned(), size, quota: 40, used: 0 };
        registration::register(&store, name, &record, store.grant(10).unwrap()).unwrap();
    }
    let client = client(&store, 1);
    let made = claims::create(&store, "x", "u", "none", 3, &client).unwrap();
    let chosen: Vec<&str> = made.members.iter().map(|place| place.server.as_str()).collect();
    // Server d has less free memory than its quota.
    assert_eq!((chosen, made.size), (vec!["a", "e", "b"], 40));
    let again = claims::create(&store, "y", "v", "none", 5, &client).unwrap_err();
    assert_eq!(again, EtcdError::NoRoom(5, 3));
    assert_eq!(
        claims::create(&store, "x", "v", "none", 1, &client).unwrap_err(),
        EtcdError::Exists("x".to_owned())
    );
}

#[test]
fn of_a_released_array_with_a_log_it_is_known_how_far_it_was() {
    let store = Fake::new(4);
    (0..2).try_for_each(|number| server(&store, number)).unwrap();
    for (name, logged) in [("x", true), ("y", false)] {
        let (first, second) = (client(&store, 1), client(&store, 2));
        let made = claims::create(&store, name, name, "none", 1, &first).unwrap();
        let hold = Hold::of(name, &made).with_log(logged);
        ownership::note(&store, &hold, (1, 5)).unwrap();
        // Opened once more without the log, with the explicit option to leave it.
        let taken = ownership::take(&store, name, &second, true).unwrap();
        let hold = Hold::of(name, &taken);
        ownership::note(&store, &hold, (2, 7)).unwrap();
        assert_eq!(claims::newest(&store, name), Ok(Some((2, 7))));
        claims::release(&store, &hold).unwrap();
        assert_eq!(claims::newest(&store, name), Ok(logged.then_some((2, 7))));
    }
    // Not read with other records, and deleted once the log belongs to another array.
    assert!(list(&store).unwrap().arrays.is_empty());
    assert_eq!(store.get(RELEASED_PREFIX).unwrap().len(), 1);
    claims::forget_released(&store, "x").unwrap();
    assert_eq!(claims::newest(&store, "x"), Ok(None));
}
