//! What clients leave in the server's memory, and how many there are, has a bound; those who behave do not feel it.

use crate::servers::{Settings, Tally};
use crate::wire::{Wire, encode};
use std::time::Duration;
use tally_core::limits;
use tally_node::assemble::Options;

const MIB: usize = 1 << 20;
const BUDGET_BYTES: usize = 8 * MIB;

fn start(change: fn(&mut Options)) -> Tally {
    Tally::start(&Settings { change: Some(change), ..Settings::default() })
}

fn start_small() -> Tally {
    start(|options| options.client_bytes = Some(BUDGET_BYTES as u64))
}

fn works(wire: &mut Wire) -> bool {
    wire.command(&[b"PING"]) == [b"+PONG"]
}

/// What all clients hold, as the server books it.
fn held_bytes(wire: &mut Wire) -> usize {
    let info = wire.command(&[b"INFO", b"memory"])[1].clone();
    let text = String::from_utf8(info).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("mem_clients_normal:")).unwrap();
    line.parse().unwrap()
}

#[test]
fn unfinished_commands_are_bounded_in_sum() {
    let tally = start_small();
    let mut good = Wire::connect(tally.address());
    assert!(works(&mut good));
    let unfinished = [&b"*9\r\n$4\r\nMGET\r\n$1048576\r\n"[..], &vec![b'x'; MIB], b"\r\n$1048576\r\n"].concat();
    let mut others: Vec<Wire> = (0..20).map(|_| Wire::connect(tally.address())).collect();
    others.iter_mut().for_each(|wire| wire.send(&unfinished));
    // Each has been read when it is closed or waits for more.
    let held = std::iter::repeat_with(|| held_bytes(&mut good));
    let most = held.take(200).inspect(|held| assert!(*held <= BUDGET_BYTES, "{held}")).max().unwrap();
    assert!(most > MIB, "nothing is booked");
    for wire in &mut others {
        wire.finish();
    }
    let closed_early = others.iter_mut().filter_map(|wire| wire.reply()).count();
    assert!(closed_early < others.len());
    assert!(works(&mut good) && works(&mut Wire::connect(tally.address())));
    tally.stop();
}

#[test]
fn replies_that_nobody_reads_are_bounded_in_sum() {
    let tally = start_small();
    let mut good = Wire::connect(tally.address());
    let echo = encode(&[b"ECHO", &vec![b'x'; 100_000]]);
    let mut deaf: Vec<Wire> = (0..12).map(|_| Wire::connect(tally.address())).collect();
    for wire in &mut deaf {
        (0..80).for_each(|_| wire.send(&echo));
    }
    let held = held_bytes(&mut good);
    assert!(held <= BUDGET_BYTES, "{held}");
    let whole = deaf.iter_mut().map(|wire| (0..80).map_while(|_| wire.reply()).count()).filter(|n| *n == 80);
    assert!(whole.count() < 12, "some had to go");
    assert!(works(&mut good));
    tally.stop();
}

/// The numbers that `CLIENT LIST` has of one connection.
fn listed(wire: &mut Wire, name: &str) -> impl Fn(&str) -> usize + use<> {
    let list = String::from_utf8(wire.command(&[b"CLIENT", b"LIST"])[1].clone()).unwrap();
    let line = list.lines().find(|line| line.contains(&format!(" name={name} "))).unwrap().to_owned();
    move |field| {
        let value = line.split(' ').find_map(|word| word.strip_prefix(field)?.strip_prefix('='));
        value.unwrap().parse().unwrap()
    }
}

#[test]
fn client_list_tells_what_a_client_leaves_in_memory() {
    let tally = start(|_| {});
    let mut watcher = Wire::connect(tally.address());
    let mut deaf = Wire::connect(tally.address());
    assert_eq!(deaf.command(&[b"CLIENT", b"SETNAME", b"deaf"]), [b"+OK"]);
    let at_rest = listed(&mut watcher, "deaf");
    assert_eq!(["qbuf", "qbuf-free", "multi-mem", "oll", "omem"].map(&at_rest), [0; 5]);
    assert!(at_rest("tot-mem") > 0);
    // More than the system buffers for it.
    let echo = encode(&[b"ECHO", &vec![b'x'; MIB]]);
    (0..32).for_each(|_| deaf.send(&echo));
    let told = std::iter::repeat_with(|| listed(&mut watcher, "deaf")).find(|told| told("omem") > 0).unwrap();
    assert_eq!(told("oll"), 1);
    assert!(told("tot-mem") > told("omem"));
    (0..32).for_each(|_| assert_eq!(deaf.reply().unwrap()[1].len(), MIB));
    // The last reply may be here before the node has told that the command is done with.
    let _rest = std::iter::repeat_with(|| listed(&mut watcher, "deaf")).find(|told| told("qbuf") == 0).unwrap();
    // An unfinished command waits in it.
    deaf.send(b"*2\r\n$4\r\nECHO\r\n$9\r\nunfin");
    let told = std::iter::repeat_with(|| listed(&mut watcher, "deaf")).find(|told| told("qbuf") > 0).unwrap();
    assert_eq!((told("qbuf"), told("omem")), (23, 0));
    tally.stop();
}

#[test]
fn a_short_beginning_of_a_command_costs_nothing_and_is_kept() {
    let tally = start(|options| options.client_bytes = Some(1));
    let mut wires: Vec<Wire> = (0..50).map(|_| Wire::connect(tally.address())).collect();
    wires.iter_mut().for_each(|wire| wire.send(b"*2\r\n$4\r\nINCR\r\n$3\r\na"));
    let mut other = Wire::connect(tally.address());
    assert!(works(&mut other));
    wires.iter_mut().for_each(|wire| wire.send(b"bc\r\n"));
    wires.iter_mut().for_each(|wire| assert!(wire.reply().unwrap()[0].starts_with(b":")));
    assert_eq!(other.command(&[b"GET", b"abc"])[1], b"50");
    tally.stop();
}

#[test]
fn who_neither_goes_on_nor_reads_is_let_go() {
    let tally = start(|options| options.resp_options.stall_timeout = Duration::from_millis(200));
    let mut half = Wire::connect(tally.address());
    half.send(&[&b"*2\r\n$4\r\nECHO\r\n$100000\r\n"[..], &[b'x'; 50_000]].concat());
    assert_eq!(half.reply(), None);
    let mut idle = Wire::connect(tally.address());
    assert!(works(&mut idle), "an idle client is none of them");
    tally.stop();
}

fn guarded(options: &mut Options) {
    options.resp_options.password = tally_node::frontend::Password::new("sesame");
}

#[test]
fn a_stranger_may_neither_stay_nor_send_much() {
    let tally = start(|options| {
        guarded(options);
        options.resp_options.stranger_timeout = Duration::from_millis(300);
    });
    let mut silent = Wire::connect(tally.address());
    assert_eq!(silent.reply(), None, "the time is up");
    let argument = [&b"$16000\r\n"[..], &[b'x'; 16_000], b"\r\n"].concat();
    let mut long = Wire::connect(tally.address());
    long.send(&[&b"*10\r\n"[..], &argument.repeat(5)].concat());
    let refused = long.reply().expect("a reason");
    assert!(refused[0].starts_with(b"-ERR Protocol error: unauthenticated request of more than 65536"), "{refused:?}");
    let mut known = Wire::connect(tally.address());
    assert_eq!(known.command(&[b"AUTH", b"sesame"]), [b"+OK"]);
    tally.stop();
}

#[test]
fn silent_connections_keep_nobody_out() {
    let tally = start(|options| options.resp_options.clients_max = 4);
    let mut used = Wire::connect(tally.address());
    assert!(works(&mut used));
    let mut silent: Vec<Wire> = (0..8).map(|_| Wire::connect(tally.address())).collect();
    for _ in 0..8 {
        assert!(works(&mut Wire::connect(tally.address())), "a newcomer gets a place");
    }
    assert!(works(&mut used), "who is known keeps his place");
    assert_eq!(silent[0].reply(), None, "the one that was there longest had to go");
    tally.stop();
}

#[test]
fn one_address_does_not_take_every_place() {
    let tally = start(|options| options.resp_options.clients_per_address_max = Some(2));
    let mut held: Vec<Wire> = (0..2).map(|_| Wire::connect(tally.address())).collect();
    held.iter_mut().for_each(|wire| assert!(works(wire)));
    let mut third = Wire::connect(tally.address());
    assert_eq!(third.reply().unwrap(), [b"-ERR max number of clients reached"]);
    tally.stop();
}

#[test]
fn a_client_may_be_called_something_short() {
    let tally = start(|_| {});
    let mut wire = Wire::connect(tally.address());
    let (most, more) = (vec![b'x'; limits::RESP_CLIENT_NAME_BYTES_MAX], vec![b'x'; MIB]);
    assert_eq!(wire.command(&[b"CLIENT", b"SETNAME", &most]), [b"+OK"]);
    for command in
        [&[&b"CLIENT"[..], b"SETNAME"][..], &[b"CLIENT", b"SETINFO", b"LIB-NAME"], &[b"HELLO", b"3", b"SETNAME"]]
    {
        let refused = wire.command(&[command, &[&more]].concat());
        assert!(
            String::from_utf8_lossy(&refused[0]).contains("has 1048576 bytes, and 256 are the most"),
            "{refused:?}"
        );
    }
    assert_eq!(wire.command(&[b"CLIENT", b"GETNAME"])[1], most);
    tally.stop();
}

#[test]
fn a_pattern_has_a_longest_length() {
    let tally = start(|_| {});
    let mut wire = Wire::connect(tally.address());
    let pattern = vec![b'?'; limits::RESP_PATTERN_BYTES_MAX + 1];
    for command in [&[&b"KEYS"[..]][..], &[b"SCAN", b"0", b"MATCH"]] {
        let refused = wire.command(&[command, &[&pattern]].concat());
        assert!(refused[0].starts_with(b"-ERR the pattern has 16385 bytes"), "{refused:?}");
    }
    tally.stop();
}

#[test]
fn walks_end_with_the_connection_that_asked_for_them() {
    let tally = start(|options| options.resp_options.linger = Duration::ZERO);
    let mut wire = Wire::connect(tally.address());
    let names: Vec<u8> = (0..5000).flat_map(|n| encode(&[b"INCR", format!("name:{n}").as_bytes()])).collect();
    wire.send(&names);
    (0..5000).for_each(|_| drop(wire.reply().unwrap()));
    let walks = 3000;
    let mut leaving = Wire::connect(tally.address());
    leaving.send(&encode(&[b"KEYS", b"*nothing"]).repeat(walks));
    drop(leaving);
    let clients =
        |wire: &mut Wire| wire.command(&[b"CLIENT", b"LIST"])[1].iter().filter(|&&byte| byte == b'\n').count();
    let looks = 1 + (0..).take_while(|_| clients(&mut wire) > 1).count();
    let info = wire.command(&[b"INFO", b"stats"])[1].clone();
    let text = String::from_utf8(info).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).unwrap();
    let others = 5000 + looks;
    let walked = line.parse::<usize>().unwrap() - others;
    assert!(walked < walks, "all of them went on");
    tally.stop();
}
