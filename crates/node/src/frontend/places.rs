//! Places for connections: so many in all, so many from one address.
//!
//! A connection is a *stranger* until it has been answered once (over the Redis protocol: until it may do something and
//! has done it). When all places are taken, a newcomer gets the place of the stranger who has been there longest. So
//! connections that say nothing, or say it very slowly, keep nobody out, and one that is in use never loses its place.

use prometheus_client::metrics::counter::Counter;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

#[derive(Debug)]
pub struct Places {
    max: usize,
    /// `None`: three quarters for one address, all of them for this machine.
    per_address_max: Option<usize>,
    taken: Mutex<TakenPlaces>,
    /// Strangers who had to go.
    displaced: Counter,
}

#[derive(Debug, Default)]
struct TakenPlaces {
    count: usize,
    by_address: HashMap<IpAddr, usize>,
    /// By the order in which they came.
    strangers: BTreeMap<u64, Stranger>,
    last_ticket: u64,
}

#[derive(Debug)]
struct Stranger {
    address: IpAddr,
    /// How it is made to leave; `None` until its task runs.
    task: Option<AbortHandle>,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    Full,
    TooManyFromThere,
}

impl Places {
    pub fn new(max: usize, per_address_max: Option<usize>, displaced: Counter) -> Arc<Places> {
        Arc::new(Places { max, per_address_max, taken: Mutex::default(), displaced })
    }

    /// Takes a place, if need be that of a stranger.
    pub fn take(self: &Arc<Places>, address: IpAddr) -> Result<ClientPlace, NoPlace> {
        let address = address.to_canonical();
        let mut taken = self.lock();
        let too_many = self.max_for(address).is_some_and(|max| taken.of(address) >= max);
        if too_many && !self.displace(&mut taken, |stranger| stranger.address == address) {
            return Err(NoPlace::TooManyFromThere);
        }
        if taken.count >= self.max && !self.displace(&mut taken, |_| true) {
            return Err(NoPlace::Full);
        }
        taken.count += 1;
        *taken.by_address.entry(address).or_default() += 1;
        taken.last_ticket += 1;
        let ticket = taken.last_ticket;
        taken.strangers.insert(ticket, Stranger { address, task: None });
        Ok(ClientPlace { places: self.clone(), address, ticket, is_settled: AtomicBool::new(false) })
    }

    fn displace(&self, taken: &mut TakenPlaces, is_meant: impl Fn(&Stranger) -> bool) -> bool {
        let has_gone = taken.displace(is_meant);
        self.displaced.inc_by(has_gone.into());
        has_gone
    }

    fn max_for(&self, address: IpAddr) -> Option<usize> {
        let default = (!address.is_loopback()).then(|| self.max - self.max / 4);
        self.per_address_max.or(default)
    }

    fn lock(&self) -> MutexGuard<'_, TakenPlaces> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TakenPlaces {
    fn of(&self, address: IpAddr) -> usize {
        self.by_address.get(&address).copied().unwrap_or(0)
    }

    /// Makes the stranger leave who has been there longest; false if there is none.
    fn displace(&mut self, is_meant: impl Fn(&Stranger) -> bool) -> bool {
        let mut strangers = self.strangers.iter();
        let found = strangers.find(|(_, stranger)| stranger.task.is_some() && is_meant(stranger));
        let Some(ticket) = found.map(|(ticket, _)| *ticket) else { return false };
        let stranger = self.strangers.remove(&ticket).expect("it was found");
        self.free(stranger.address);
        stranger.task.expect("only those with a task are meant").abort();
        true
    }

    fn free(&mut self, address: IpAddr) {
        self.count = self.count.checked_sub(1).expect("the place was taken");
        let there = self.by_address.get_mut(&address).expect("the place was taken from there");
        *there -= 1;
        if *there == 0 {
            self.by_address.remove(&address);
        }
    }
}

/// A place, until it is dropped.
#[derive(Debug)]
pub struct ClientPlace {
    places: Arc<Places>,
    address: IpAddr,
    ticket: u64,
    is_settled: AtomicBool,
}

/// How whoever started a connection says which task has its place.
#[derive(Debug)]
pub struct Ticket {
    places: Arc<Places>,
    ticket: u64,
}

impl Ticket {
    /// From now on the place can be taken away by ending this task.
    pub fn belongs_to(self, task: AbortHandle) {
        if let Some(stranger) = self.places.lock().strangers.get_mut(&self.ticket) {
            stranger.task = Some(task);
        }
    }
}

impl ClientPlace {
    pub fn ticket(&self) -> Ticket {
        Ticket { places: self.places.clone(), ticket: self.ticket }
    }

    /// The connection is no stranger any more: nobody takes its place.
    pub fn settle(&self) {
        if !self.is_settled.load(Ordering::Relaxed) {
            let mut taken = self.places.lock();
            // Whoever lost his place just now is being ended.
            self.is_settled.store(taken.strangers.remove(&self.ticket).is_some(), Ordering::Relaxed);
        }
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        // Neither settled nor among the strangers: the place was taken away, and is somebody else's.
        if taken.strangers.remove(&self.ticket).is_some() || *self.is_settled.get_mut() {
            taken.free(self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn there(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    #[expect(clippy::disallowed_methods, reason = "this test ends its tasks itself")]
    fn run(place: ClientPlace) -> tokio::task::JoinHandle<()> {
        let ticket = place.ticket();
        let task = tokio::spawn(async move {
            let _place = place;
            pending::<()>().await;
        });
        ticket.belongs_to(task.abort_handle());
        task
    }

    #[tokio::test]
    async fn a_newcomer_gets_the_place_of_the_oldest_stranger() {
        let places = Places::new(3, None, Counter::default());
        let settled = places.take(HERE).unwrap();
        settled.settle();
        let (first, second) = (run(places.take(HERE).unwrap()), run(places.take(HERE).unwrap()));
        let newcomer = places.take(HERE).unwrap();
        assert!(first.await.unwrap_err().is_cancelled());
        assert!(!second.is_finished());
        newcomer.settle();
        let last = places.take(HERE).unwrap();
        assert!(second.await.unwrap_err().is_cancelled());
        last.settle();
        assert_eq!(places.take(HERE).unwrap_err(), NoPlace::Full);
        drop((settled, newcomer, last));
        let taken = places.lock();
        assert_eq!((taken.count, taken.by_address.len()), (0, 0));
    }

    #[test]
    fn one_address_leaves_places_to_the_others() {
        let places = Places::new(8, None, Counter::default());
        let mut held: Vec<ClientPlace> = (0..6).map(|_| places.take(there(1)).unwrap()).collect();
        held.iter().for_each(ClientPlace::settle);
        assert_eq!(places.take(there(1)).unwrap_err(), NoPlace::TooManyFromThere);
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(places.take(mapped).unwrap_err(), NoPlace::TooManyFromThere);
        held.extend([places.take(there(2)).unwrap(), places.take(there(3)).unwrap()]);
        held.iter().for_each(ClientPlace::settle);
        assert_eq!(places.take(there(4)).unwrap_err(), NoPlace::Full);
    }

    #[test]
    fn this_machine_may_have_every_place_unless_it_is_told_otherwise() {
        let places = Places::new(4, None, Counter::default());
        let held: Vec<ClientPlace> = (0..4).map(|_| places.take(HERE).unwrap()).collect();
        assert_eq!(held.len(), 4);
        let places = Places::new(4, Some(2), Counter::default());
        let held: Vec<ClientPlace> = (0..2).map(|_| places.take(HERE).unwrap()).collect();
        held.iter().for_each(ClientPlace::settle);
        assert_eq!(places.take(HERE).unwrap_err(), NoPlace::TooManyFromThere);
    }
}
