//! The connection itself: `PING ECHO QUIT SELECT AUTH HELLO RESET CLIENT`, and `TIME`.

use super::super::client::Hearing;
use super::super::encode::Protocol;
use super::super::fault::{self, ErrorReply};
use super::super::integer::parse_i64;
use super::super::parse::Args;
use super::super::pass::{CommandOutcome, Flow, Pass, database, is};
use super::REDIS_VERSION;
use super::transaction::unwatch_all;
use crate::clock;
use tally_core::limits;

const WRONG_PASSWORD: ErrorReply = ErrorReply::of("WRONGPASS invalid username-password pair or user is disabled.");

pub fn ping(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    match args.len() {
        1 => pass.replies.say(|reply| reply.simple("PONG")),
        2 => pass.replies.say(|reply| reply.bulk(args.get(1))),
        _ => return Err(ErrorReply::arity("ping")),
    }
    Ok(Flow::Next)
}

pub fn echo(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    pass.replies.say(|reply| reply.bulk(args.get(1)));
    Ok(Flow::Next)
}

pub fn quit(pass: &mut Pass<'_>, _: Args<'_>) -> CommandOutcome {
    pass.ok()?;
    Ok(Flow::Close)
}

pub fn select(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    pass.client.database.set(database(args.get(1))?);
    pass.ok()
}

/// The time by which counters end, which is that of `EXPIREAT`.
pub fn time(pass: &mut Pass<'_>, _: Args<'_>) -> CommandOutcome {
    let now_ms = pass.server.host.clock.now_ms();
    pass.replies.say(|reply| {
        reply.array(2);
        reply.bulk((now_ms / 1000).to_string().as_bytes());
        reply.bulk((now_ms % 1000 * 1000).to_string().as_bytes());
    });
    Ok(Flow::Next)
}

pub fn auth(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let (user, password) = match args.len() {
        2 if pass.server.options.password.is_none() => {
            return Err(ErrorReply::of(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
            ));
        }
        2 => (&b"default"[..], args.get(1)),
        3 => (args.get(1), args.get(2)),
        _ => return Err(fault::SYNTAX),
    };
    authenticate(pass, user, password)?;
    pass.ok()
}

fn authenticate(pass: &mut Pass<'_>, user: &[u8], password: &[u8]) -> Result<(), ErrorReply> {
    let welcome = match &pass.server.options.password {
        None => true,
        Some(secret) => secret.is(password),
    };
    if !welcome || user != b"default" {
        pass.server.tell_wrong_password(pass.client.address);
        return Err(WRONG_PASSWORD);
    }
    pass.client.authenticated.set(true);
    Ok(())
}

pub fn hello(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let protocol = if args.len() > 1 { Some(version(args.get(1))?) } else { None };
    let mut words = args.from(2);
    while let Some(word) = words.next() {
        if is(word, "AUTH") && words.len() >= 2 {
            let (user, password) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            authenticate(pass, user, password)?;
        } else if is(word, "SETNAME") && words.len() >= 1 {
            set_name(pass, words.next().unwrap_or_default())?;
        } else {
            return Err(ErrorReply::join(&[b"ERR Syntax error in HELLO option '", word, b"'"]));
        }
    }
    if !pass.client.authenticated.get() {
        return Err(ErrorReply::of(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    pass.speak(protocol.unwrap_or(pass.client.protocol.get()));
    introduce(pass);
    Ok(Flow::Next)
}

fn version(argument: &[u8]) -> Result<Protocol, ErrorReply> {
    match parse_i64(argument) {
        Some(2) => Ok(Protocol::Resp2),
        Some(3) => Ok(Protocol::Resp3),
        Some(_) => Err(ErrorReply::of("NOPROTO unsupported protocol version")),
        None => Err(ErrorReply::of("ERR Protocol version is not an integer or out of range")),
    }
}

fn introduce(pass: &mut Pass<'_>) {
    let (id, protocol) = (pass.client.id, pass.client.protocol.get());
    pass.replies.say(|reply| {
        reply.map(7);
        reply.bulk(b"server");
        reply.bulk(b"redis");
        reply.bulk(b"version");
        reply.bulk(REDIS_VERSION.as_bytes());
        reply.bulk(b"proto");
        reply.integer(protocol as i64);
        reply.bulk(b"id");
        reply.integer(id as i64);
        reply.bulk(b"mode");
        reply.bulk(b"standalone");
        reply.bulk(b"role");
        reply.bulk(b"master");
        reply.bulk(b"modules");
        reply.array(0);
    });
}

pub fn reset(pass: &mut Pass<'_>, _: Args<'_>) -> CommandOutcome {
    pass.client.transaction.take();
    unwatch_all(pass);
    pass.client.database.set(0);
    pass.speak(Protocol::Resp2);
    // As in Redis, `CLIENT REPLY SKIP` is about this reply, too.
    if pass.client.hearing.get() != Hearing::SkipThis {
        pass.set_hearing(Hearing::All);
    }
    pass.client.name.borrow_mut().clear();
    pass.client.evictable.set(true);
    pass.client.authenticated.set(pass.server.options.password.is_none());
    pass.replies.say(|reply| reply.simple("RESET"));
    Ok(Flow::Next)
}

pub fn client_id(pass: &mut Pass<'_>, _: Args<'_>) -> CommandOutcome {
    let id = pass.client.id;
    pass.replies.say(|reply| reply.integer(id as i64));
    Ok(Flow::Next)
}

pub fn client_getname(pass: &mut Pass<'_>, _: Args<'_>) -> CommandOutcome {
    let name = pass.client.name.borrow();
    pass.replies.say(|reply| if name.is_empty() { reply.null() } else { reply.bulk(&name) });
    Ok(Flow::Next)
}

pub fn client_setname(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    set_name(pass, args.get(2))?;
    pass.ok()
}

fn set_name(pass: &mut Pass<'_>, name: &[u8]) -> Result<(), ErrorReply> {
    check_length("the client name", name)?;
    if !name.iter().all(u8::is_ascii_graphic) {
        return Err(ErrorReply::of("ERR Client names cannot contain spaces, newlines or special characters."));
    }
    *pass.client.name.borrow_mut() = name.to_vec();
    Ok(())
}

/// Every connection keeps what it is called, so it may not be much.
fn check_length(what: &str, value: &[u8]) -> Result<(), ErrorReply> {
    match value.len() <= limits::RESP_CLIENT_NAME_BYTES_MAX {
        true => Ok(()),
        false => Err(ErrorReply::from(format!(
            "ERR {what} has {} bytes, and {} are the most: use a shorter one",
            value.len(),
            limits::RESP_CLIENT_NAME_BYTES_MAX
        ))),
    }
}

/// Newer than the Redis whose answers these are, but client libraries introduce themselves with it.
pub fn client_setinfo(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let (attribute, value) = (args.get(2), args.get(3));
    if !value.iter().all(u8::is_ascii_graphic) {
        let attribute = String::from_utf8_lossy(attribute).to_ascii_lowercase();
        return Err(ErrorReply::from(format!(
            "ERR {attribute} cannot contain spaces, newlines or special characters."
        )));
    }
    check_length("the value", value)?;
    let mut library = pass.client.library.borrow_mut();
    match attribute {
        _ if is(attribute, "LIB-NAME") => library.name = value.to_vec(),
        _ if is(attribute, "LIB-VER") => library.version = value.to_vec(),
        _ => return Err(ErrorReply::join(&[b"ERR Unrecognized option '", attribute, b"'"])),
    }
    pass.ok()
}

fn argument_bytes(args: Args<'_>) -> usize {
    args.from(0).map(<[u8]>::len).sum()
}

pub fn client_info(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let line = pass.client.describe(clock::wall_ms(), argument_bytes(args));
    pass.replies.say(|reply| reply.verbatim(&line));
    Ok(Flow::Next)
}

pub fn client_list(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let clients = match args.len() {
        2 => pass.server.clients.all(),
        4 if is(args.get(2), "TYPE") => match args.get(3) {
            normal if is(normal, "NORMAL") => pass.server.clients.all(),
            other if ["MASTER", "REPLICA", "SLAVE", "PUBSUB"].iter().any(|name| is(other, name)) => Vec::new(),
            unknown => return Err(ErrorReply::join(&[b"ERR Unknown client type '", unknown, b"'"])),
        },
        4.. if is(args.get(2), "ID") => {
            let ids: Option<Vec<i64>> = args.from(3).map(parse_i64).collect();
            let ids = ids.ok_or(ErrorReply::of("ERR Invalid client ID"))?;
            ids.iter().filter_map(|&id| pass.server.clients.get(u64::try_from(id).ok()?)).collect()
        }
        _ => return Err(fault::SYNTAX),
    };
    let now_ms = clock::wall_ms();
    let own_bytes = argument_bytes(args);
    let bytes_of = |id| if id == pass.client.id { own_bytes } else { 0 };
    let lines: String = clients.iter().map(|client| client.describe(now_ms, bytes_of(client.id))).collect();
    pass.replies.say(|reply| reply.verbatim(&lines));
    Ok(Flow::Next)
}

pub fn client_no_evict(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let evictable = match args.get(2) {
        on if is(on, "ON") => false,
        off if is(off, "OFF") => true,
        _ => return Err(fault::SYNTAX),
    };
    pass.client.evictable.set(evictable);
    pass.ok()
}

pub fn client_reply(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let hearing = match args.get(2) {
        on if is(on, "ON") => Hearing::All,
        off if is(off, "OFF") => Hearing::None,
        skip if is(skip, "SKIP") && pass.client.hearing.get() == Hearing::None => return Ok(Flow::Next),
        skip if is(skip, "SKIP") => Hearing::SkipNext,
        _ => return Err(fault::SYNTAX),
    };
    pass.set_hearing(hearing);
    if hearing == Hearing::All { pass.ok() } else { Ok(Flow::Next) }
}
