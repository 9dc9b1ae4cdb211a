//! Everything that is known about each command. The frequent ones come first.

use super::Keys::{All, EverySecond, First, Two};
use super::{
    Command, config, copy, counter, docs, expiry, function, help, info, keyspace, session, several, transaction,
};

const READ: super::Keys = First { flags: "RO access", note: "" };
const ADD: super::Keys = First { flags: "RW access update", note: "" };
const EXPIRE: super::Keys = First { flags: "RW update", note: "" };
const NO_AUTH: &str = "noscript loading stale fast no_auth allow_busy";

/// How many commands there are, and how many subcommands each container has.
const MAIN: usize = 59;
const CLIENTS: usize = 9;
const COMMAND_ONES: usize = 6;
const CONFIGS: usize = 4;
const FUNCTIONS: usize = 3;

/// Of all of them.
pub const SLOTS: usize = MAIN + CLIENTS + COMMAND_ONES + CONFIGS + FUNCTIONS;

/// Gives each command a slot of its own, counted from `first`.
const fn in_slots<const N: usize>(first: usize, mut commands: [Command; N]) -> [Command; N] {
    let mut index = 0;
    while index < N {
        commands[index].slot = first + index;
        index += 1;
    }
    commands
}

pub static COMMANDS: [Command; MAIN] = in_slots(0, [
    Command::new("incr", 2, counter::incr)
        .flags("write denyoom fast", "@write @string @fast")
        .keys(ADD)
        .about("string", "Adds one to a counter and answers its new value")
        .since("1.0.0", "O(1)")
        .syntax("key"),
    Command::new("get", 2, counter::get)
        .flags("readonly fast", "@read @string @fast")
        .keys(READ)
        .about("string", "Answers the value of a counter")
        .since("1.0.0", "O(1)")
        .syntax("key"),
    Command::new("incrby", 3, counter::incr_by)
        .flags("write denyoom fast", "@write @string @fast")
        .keys(ADD)
        .about("string", "Adds to a counter and answers its new value")
        .since("1.0.0", "O(1)")
        .syntax("key increment:integer"),
    Command::new("decr", 2, counter::decr)
        .flags("write denyoom fast", "@write @string @fast")
        .keys(ADD)
        .about("string", "Subtracts one from a counter and answers its new value")
        .since("1.0.0", "O(1)")
        .syntax("key"),
    Command::new("decrby", 3, counter::decr_by)
        .flags("write denyoom fast", "@write @string @fast")
        .keys(ADD)
        .about("string", "Subtracts from a counter and answers its new value")
        .since("1.0.0", "O(1)")
        .syntax("key decrement:integer"),
    Command::new("tally.incrby", -3, counter::tally_incr_by)
        .flags("write denyoom fast", "@write @string @fast")
        .keys(ADD)
        .about("string", "Adds to a counter, once per ID, and answers its value, whether it counted now, and a token")
        .since("", "O(1)")
        .syntax("key increment:integer ?ID=id:string"),
    Command::new("mget", -2, counter::mget)
        .flags("readonly fast", "@read @string @fast")
        .keys(All { flags: "RO access" })
        .tips("request_policy:multi_shard")
        .about("string", "Answers the values of several counters")
        .since("1.0.0", "O(N) with N ids")
        .syntax("key+"),
    Command::new("set", -3, counter::set)
        .flags("write denyoom", "@write @string @slow")
        .keys(First {
            flags: "RW access update variable_flags",
            note: "RW and ACCESS due to the optional `GET` argument",
        })
        .about("string", "Gives a counter a value")
        .since("1.0.0", "O(1)")
        .syntax("key value:string ?condition(NX|XX) ?GET ?expiration(EX=seconds:integer|PX=milliseconds:integer|EXAT=unix-time-seconds:unix-time|PXAT=unix-time-milliseconds:unix-time|KEEPTTL)"),
    Command::new("getset", 3, counter::getset)
        .flags("write denyoom fast", "@write @string @fast")
        .keys(ADD)
        .about("string", "Gives a counter a value and answers the one before")
        .since("1.0.0", "O(1)")
        .syntax("key value:string"),
    Command::new("getdel", 2, counter::getdel)
        .flags("write fast", "@write @string @fast")
        .keys(First { flags: "RW access delete", note: "" })
        .about("string", "Answers the value of a counter and deletes it")
        .since("6.2.0", "O(1)")
        .syntax("key"),
    Command::new("getex", -2, expiry::getex)
        .flags("write fast", "@write @string @fast")
        .keys(First { flags: "RW access update", note: "RW and UPDATE because it changes the TTL" })
        .about("string", "Answers the value of a counter, and lets it end or stay")
        .since("6.2.0", "O(1)")
        .syntax("key ?expiration(EX=seconds:integer|PX=milliseconds:integer|EXAT=unix-time-seconds:unix-time|PXAT=unix-time-milliseconds:unix-time|PERSIST)"),
    Command::new("setnx", 3, counter::setnx)
        .flags("write denyoom fast", "@write @string @fast")
        .keys(First { flags: "OW insert", note: "" })
        .about("string", "Gives a counter a value if there is no such counter")
        .since("1.0.0", "O(1)")
        .syntax("key value:string"),
    Command::new("setex", 4, expiry::setex)
        .flags("write denyoom", "@write @string @slow")
        .keys(First { flags: "OW update", note: "" })
        .about("string", "Gives a counter a value and so many seconds")
        .since("2.0.0", "O(1)")
        .syntax("key seconds:integer value:string"),
    Command::new("psetex", 4, expiry::psetex)
        .flags("write denyoom", "@write @string @slow")
        .keys(First { flags: "OW update", note: "" })
        .about("string", "Gives a counter a value and so many milliseconds")
        .since("2.6.0", "O(1)")
        .syntax("key milliseconds:integer value:string"),
    Command::new("mset", -3, several::mset)
        .flags("write denyoom", "@write @string @slow")
        .keys(EverySecond { flags: "OW update" })
        .tips("request_policy:multi_shard response_policy:all_succeeded")
        .about("string", "Gives several counters values, as one")
        .since("1.0.1", "O(N) with N ids")
        .syntax("key_value{key value:string}+"),
    Command::new("msetnx", -3, several::msetnx)
        .flags("write denyoom", "@write @string @slow")
        .keys(EverySecond { flags: "OW insert" })
        .tips("request_policy:multi_shard response_policy:agg_min")
        .about("string", "Gives several counters values if there is none of them")
        .since("1.0.1", "O(N) with N ids")
        .syntax("key_value{key value:string}+"),
    Command::new("strlen", 2, counter::strlen)
        .flags("readonly fast", "@read @string @fast")
        .keys(First { flags: "RO", note: "" })
        .about("string", "Answers how many characters the value of a counter has")
        .since("2.2.0", "O(1)")
        .syntax("key"),
    Command::new("del", -2, keyspace::del)
        .flags("write", "@keyspace @write @slow")
        .keys(All { flags: "RM delete" })
        .tips("request_policy:multi_shard response_policy:agg_sum")
        .about("generic", "Deletes counters and answers how many there were")
        .since("1.0.0", "O(N) with N ids")
        .syntax("key+"),
    Command::new("unlink", -2, keyspace::del)
        .flags("write fast", "@keyspace @write @fast")
        .keys(All { flags: "RM delete" })
        .tips("request_policy:multi_shard response_policy:agg_sum")
        .about("generic", "Deletes counters and answers how many there were")
        .since("4.0.0", "O(N) with N ids")
        .syntax("key+"),
    Command::new("exists", -2, keyspace::exists)
        .flags("readonly fast", "@keyspace @read @fast")
        .keys(All { flags: "RO" })
        .tips("request_policy:multi_shard response_policy:agg_sum")
        .about("generic", "Answers how many of the counters there are")
        .since("1.0.0", "O(N) with N ids")
        .syntax("key+"),
    Command::new("expire", -3, expiry::expire)
        .flags("write fast", "@keyspace @write @fast")
        .keys(EXPIRE)
        .about("generic", "Lets a counter end in so many seconds")
        .since("1.0.0", "O(1)")
        .syntax("key seconds:integer ?condition(NX|XX|GT|LT)"),
    Command::new("pexpire", -3, expiry::pexpire)
        .flags("write fast", "@keyspace @write @fast")
        .keys(EXPIRE)
        .about("generic", "Lets a counter end in so many milliseconds")
        .since("2.6.0", "O(1)")
        .syntax("key milliseconds:integer ?condition(NX|XX|GT|LT)"),
    Command::new("expireat", -3, expiry::expireat)
        .flags("write fast", "@keyspace @write @fast")
        .keys(EXPIRE)
        .about("generic", "Lets a counter end at a time in seconds since 1970")
        .since("1.2.0", "O(1)")
        .syntax("key unix-time-seconds:unix-time ?condition(NX|XX|GT|LT)"),
    Command::new("pexpireat", -3, expiry::pexpireat)
        .flags("write fast", "@keyspace @write @fast")
        .keys(EXPIRE)
        .about("generic", "Lets a counter end at a time in milliseconds since 1970")
        .since("2.6.0", "O(1)")
        .syntax("key unix-time-milliseconds:unix-time ?condition(NX|XX|GT|LT)"),
    Command::new("ttl", 2, expiry::ttl)
        .flags("readonly fast", "@keyspace @read @fast")
        .keys(READ)
        .tips("nondeterministic_output")
        .about("generic", "Answers how many seconds a counter has left")
        .since("1.0.0", "O(1)")
        .syntax("key"),
    Command::new("pttl", 2, expiry::pttl)
        .flags("readonly fast", "@keyspace @read @fast")
        .keys(READ)
        .tips("nondeterministic_output")
        .about("generic", "Answers how many milliseconds a counter has left")
        .since("2.6.0", "O(1)")
        .syntax("key"),
    Command::new("expiretime", 2, expiry::expiretime)
        .flags("readonly fast", "@keyspace @read @fast")
        .keys(READ)
        .about("generic", "Answers when a counter ends, in seconds since 1970")
        .since("7.0.0", "O(1)")
        .syntax("key"),
    Command::new("pexpiretime", 2, expiry::pexpiretime)
        .flags("readonly fast", "@keyspace @read @fast")
        .keys(READ)
        .about("generic", "Answers when a counter ends, in milliseconds since 1970")
        .since("7.0.0", "O(1)")
        .syntax("key"),
    Command::new("persist", 2, expiry::persist)
        .flags("write fast", "@keyspace @write @fast")
        .keys(EXPIRE)
        .about("generic", "Lets a counter stay that would have ended")
        .since("2.2.0", "O(1)")
        .syntax("key"),
    Command::new("type", 2, keyspace::type_of)
        .flags("readonly fast", "@keyspace @read @fast")
        .keys(First { flags: "RO", note: "" })
        .about("generic", "Answers whether there is such a counter: string or none")
        .since("1.0.0", "O(1)")
        .syntax("key"),
    Command::new("touch", -2, keyspace::exists)
        .flags("readonly fast", "@keyspace @read @fast")
        .keys(All { flags: "RO" })
        .tips("request_policy:multi_shard response_policy:agg_sum")
        .about("generic", "Answers how many of the counters there are")
        .since("3.2.1", "O(N) with N ids")
        .syntax("key+"),
    Command::new("rename", 3, copy::rename)
        .flags("write", "@keyspace @write @slow")
        .keys(Two { first: "RW access delete", second: "OW update" })
        .about("generic", "Gives a counter another name, in place of whichever has it")
        .since("1.0.0", "O(1)")
        .syntax("key newkey:key"),
    Command::new("renamenx", 3, copy::renamenx)
        .flags("write fast", "@keyspace @write @fast")
        .keys(Two { first: "RW access delete", second: "OW insert" })
        .about("generic", "Gives a counter another name, if there is no counter of that name")
        .since("1.0.0", "O(1)")
        .syntax("key newkey:key"),
    Command::new("copy", -3, copy::copy)
        .flags("write denyoom", "@keyspace @write @slow")
        .keys(Two { first: "RO access", second: "OW update" })
        .about("generic", "Gives a counter the value and the end of another one")
        .since("6.2.0", "O(1)")
        .syntax("source:key destination:key ?DB=destination-db:integer ?REPLACE"),
    Command::new("move", 3, copy::move_to)
        .flags("write fast", "@keyspace @write @fast")
        .keys(First { flags: "RW access update", note: "" })
        .about("generic", "Moves a counter to another database")
        .since("1.0.0", "O(1)")
        .syntax("key db:integer"),
    Command::new("randomkey", 1, keyspace::randomkey)
        .flags("readonly", "@keyspace @read @slow")
        .tips("request_policy:all_shards nondeterministic_output")
        .about("generic", "Answers the name of some counter")
        .since("1.0.0", "O(N) with N counters of the database"),
    Command::new("scan", -2, keyspace::scan)
        .flags("readonly", "@keyspace @read @slow")
        .tips("nondeterministic_output request_policy:special")
        .about("generic", "Walks through the names of the counters of the selected database in steps")
        .since("2.8.0", "O(1) for each step, O(N) for a whole walk through N counters")
        .syntax("cursor:integer ?MATCH=pattern:pattern ?COUNT=count:integer ?TYPE=type:string"),
    Command::new("keys", 2, keyspace::keys)
        .flags("readonly", "@keyspace @read @slow @dangerous")
        .tips("request_policy:all_shards nondeterministic_output_order")
        .about("generic", "Lists the names of the counters that match a pattern")
        .since("1.0.0", "O(N) with N counters whose names begin as the pattern does")
        .syntax("pattern:pattern"),
    Command::new("dbsize", 1, keyspace::dbsize)
        .flags("readonly fast", "@keyspace @read @fast")
        .tips("request_policy:all_shards response_policy:agg_sum")
        .about("server", "Answers how many counters the selected database has")
        .since("1.0.0", "O(1)"),
    Command::new("flushall", -1, keyspace::flush)
        .flags("write", "@keyspace @write @slow @dangerous")
        .tips("request_policy:all_shards response_policy:all_succeeded")
        .about("server", "Deletes the counters of all databases; refused where some are declared")
        .since("1.0.0", "O(1)")
        .syntax("?async(ASYNC|SYNC)"),
    Command::new("flushdb", -1, keyspace::flush_database)
        .flags("write", "@keyspace @write @slow @dangerous")
        .tips("request_policy:all_shards response_policy:all_succeeded")
        .about("server", "Deletes the counters of the selected database; refused where some are declared")
        .since("1.0.0", "O(1) in databases 1 to 15, O(N) with N counters in database 0 beside others")
        .syntax("?async(ASYNC|SYNC)"),
    Command::new("multi", 1, transaction::multi)
        .flags("noscript loading stale fast allow_busy", "@fast @transaction")
        .about("transactions", "Begins a transaction: from here on commands are queued")
        .since("1.2.0", "O(1)")
        .at_once(),
    Command::new("exec", 1, transaction::exec)
        .flags("noscript loading stale skip_slowlog", "@slow @transaction")
        .about("transactions", "Carries out the queued commands as one")
        .since("1.2.0", "that of the queued commands")
        .at_once(),
    Command::new("discard", 1, transaction::discard)
        .flags("noscript loading stale fast allow_busy", "@fast @transaction")
        .about("transactions", "Forgets the queued commands")
        .since("2.0.0", "O(N) with N queued commands")
        .at_once(),
    Command::new("watch", -2, transaction::watch)
        .flags("noscript loading stale fast allow_busy", "@fast @transaction")
        .keys(All { flags: "RO" })
        .about("transactions", "Lets the next EXEC do nothing if one of the counters has changed by then")
        .since("2.2.0", "O(N) with N ids")
        .syntax("key+")
        .at_once(),
    Command::new("unwatch", 1, transaction::unwatch)
        .flags("noscript loading stale fast allow_busy", "@fast @transaction")
        .about("transactions", "Forgets what is watched")
        .since("2.2.0", "O(1)"),
    Command::new("ping", -1, session::ping)
        .flags("fast", "@fast @connection")
        .tips("request_policy:all_shards response_policy:all_succeeded")
        .about("connection", "Answers that the server is there")
        .since("1.0.0", "O(1)")
        .syntax("?message:string"),
    Command::new("echo", 2, session::echo)
        .flags("loading stale fast", "@fast @connection")
        .about("connection", "Answers what it was told")
        .since("1.0.0", "O(1)")
        .syntax("message:string"),
    Command::new("quit", -1, session::quit)
        .flags(NO_AUTH, "@fast @connection")
        .about("connection", "Closes the connection")
        .since("1.0.0", "O(1)")
        .at_once(),
    Command::new("select", 2, session::select)
        .flags("loading stale fast", "@fast @connection")
        .about("connection", "Chooses the database, 0 to 15")
        .since("1.0.0", "O(1)")
        .syntax("index:integer"),
    Command::new("auth", -2, session::auth)
        .flags(NO_AUTH, "@fast @connection")
        .about("connection", "Tells the server the password")
        .since("1.0.0", "O(1)")
        .syntax("?username:string password:string"),
    Command::new("hello", -1, session::hello)
        .flags(NO_AUTH, "@fast @connection")
        .about("connection", "Chooses the version of the protocol and introduces both sides")
        .since("6.0.0", "O(1)")
        .syntax("?arguments{protover:integer ?AUTH=username_password{username:string password:string} ?SETNAME=clientname:string}"),
    Command::new("reset", 1, session::reset)
        .flags(NO_AUTH, "@fast @connection")
        .about("connection", "Makes the connection like a new one")
        .since("6.2.0", "O(1)")
        .at_once(),
    Command::new("client", -2, help::none)
        .flags("", "@slow")
        .about("connection", "What the server knows about its connections")
        .since("2.4.0", "that of the subcommand")
        .with(&CLIENT),
    Command::new("command", -1, docs::command)
        .flags("loading stale", "@slow @connection")
        .tips("nondeterministic_output_order")
        .about("server", "What the server knows about its commands")
        .since("2.8.13", "O(N) with N commands")
        .with(&COMMAND),
    Command::new("config", -2, help::none)
        .flags("", "@slow")
        .about("server", "The settings of the server")
        .since("2.0.0", "that of the subcommand")
        .with(&CONFIG),
    Command::new("function", -2, help::none)
        .flags("", "@slow")
        .about("scripting", "Tally has no functions, and says so")
        .since("7.0.0", "that of the subcommand")
        .with(&FUNCTION),
    Command::new("time", 1, session::time)
        .flags("loading stale fast", "@fast")
        .tips("nondeterministic_output")
        .about("server", "Answers the time by which counters end")
        .since("2.6.0", "O(1)"),
    Command::new("info", -1, info::info)
        .flags("loading stale", "@slow @dangerous")
        .tips("nondeterministic_output request_policy:all_shards response_policy:special")
        .about("server", "What the server says about itself")
        .since("1.0.0", "O(1)")
        .syntax("?section:string+"),
]);

const CONNECTION: &str = "noscript loading stale";

static CLIENT: [Command; CLIENTS] = in_slots(
    MAIN,
    [
        Command::new("client|getname", 2, session::client_getname)
            .flags(CONNECTION, "@slow @connection")
            .about("connection", "Answers the name of the connection")
            .since("2.6.9", "O(1)"),
        Command::new("client|help", 2, help::client)
            .flags("loading stale", "@slow @connection")
            .about("connection", "Lists the subcommands")
            .since("5.0.0", "O(1)"),
        Command::new("client|id", 2, session::client_id)
            .flags(CONNECTION, "@slow @connection")
            .about("connection", "Answers the number of the connection")
            .since("5.0.0", "O(1)"),
        Command::new("client|info", 2, session::client_info)
            .flags(CONNECTION, "@slow @connection")
            .tips("nondeterministic_output")
            .about("connection", "Describes the connection")
            .since("6.2.0", "O(1)"),
        Command::new("client|list", -2, session::client_list)
            .flags("admin noscript loading stale", "@admin @slow @dangerous @connection")
            .tips("nondeterministic_output")
            .about("connection", "Describes all connections")
            .since("2.4.0", "O(N) with N connections")
            .syntax("?TYPE=normal_master_replica_pubsub(NORMAL|MASTER|REPLICA|PUBSUB) ?ID=id{client-id:integer+}"),
        Command::new("client|no-evict", 3, session::client_no_evict)
            .flags("admin noscript loading stale", "@admin @slow @dangerous @connection")
            .about("connection", "Accepted for compatibility: Tally evicts no connection")
            .since("7.0.0", "O(1)")
            .syntax("enabled(ON|OFF)"),
        Command::new("client|reply", 3, session::client_reply)
            .flags(CONNECTION, "@slow @connection")
            .about("connection", "Chooses which replies the server sends")
            .since("3.2.0", "O(1)")
            .syntax("on_off_skip(ON|OFF|SKIP)"),
        Command::new("client|setinfo", 4, session::client_setinfo)
            .flags(CONNECTION, "@slow @connection")
            .about("connection", "Tells the server the name or the version of the client library")
            .since("7.2.0", "O(1)")
            .syntax("attr(LIB-NAME=libname:string|LIB-VER=libver:string)"),
        Command::new("client|setname", 3, session::client_setname)
            .flags(CONNECTION, "@slow @connection")
            .about("connection", "Gives the connection a name")
            .since("2.6.9", "O(1)")
            .syntax("connection-name:string"),
    ],
);

static COMMAND: [Command; COMMAND_ONES] = in_slots(
    MAIN + CLIENTS,
    [
        Command::new("command|count", 2, docs::command_count)
            .flags("loading stale", "@slow @connection")
            .about("server", "Answers how many commands there are")
            .since("2.8.13", "O(1)"),
        Command::new("command|docs", -2, docs::command_docs)
            .flags("loading stale", "@slow @connection")
            .tips("nondeterministic_output_order")
            .about("server", "Explains commands")
            .since("7.0.0", "O(N) with N commands")
            .syntax("?command-name:string+"),
        Command::new("command|getkeys", -4, docs::command_getkeys)
            .flags("loading stale", "@slow @connection")
            .about("server", "Answers which arguments of a command are ids")
            .since("2.8.13", "O(N) with N arguments"),
        Command::new("command|help", 2, help::command)
            .flags("loading stale", "@slow @connection")
            .about("server", "Lists the subcommands")
            .since("5.0.0", "O(1)"),
        Command::new("command|info", -2, docs::command_info)
            .flags("loading stale", "@slow @connection")
            .tips("nondeterministic_output_order")
            .about("server", "Describes commands")
            .since("2.8.13", "O(N) with N commands")
            .syntax("?command-name:string+"),
        Command::new("command|list", -2, docs::command_list)
            .flags("loading stale", "@slow @connection")
            .tips("nondeterministic_output_order")
            .about("server", "Lists the names of the commands")
            .since("7.0.0", "O(N) with N commands")
            .syntax("?FILTERBY=filterby(MODULE=module-name:string|ACLCAT=category:string|PATTERN=pattern:pattern)"),
    ],
);

static CONFIG: [Command; CONFIGS] = in_slots(
    MAIN + CLIENTS + COMMAND_ONES,
    [
        Command::new("config|get", -3, config::get)
            .flags("admin noscript loading stale", "@admin @slow @dangerous")
            .about("server", "Answers settings")
            .since("2.0.0", "O(N) with N patterns")
            .syntax("parameter{parameter:string}+"),
        Command::new("config|help", 2, help::config)
            .flags("loading stale", "@slow")
            .about("server", "Lists the subcommands")
            .since("5.0.0", "O(1)"),
        Command::new("config|resetstat", 2, config::reset_stat)
            .flags("admin noscript loading stale", "@admin @slow @dangerous")
            .about("server", "Begins anew with what INFO counts")
            .since("2.0.0", "O(1)"),
        Command::new("config|set", -4, config::set)
            .flags("admin noscript loading stale", "@admin @slow @dangerous")
            .tips("request_policy:all_nodes response_policy:all_succeeded")
            .about("server", "Refused: Tally takes its settings at start")
            .since("2.0.0", "O(1)")
            .syntax("parameter_value{parameter:string value:string}+"),
    ],
);

static FUNCTION: [Command; FUNCTIONS] = in_slots(
    MAIN + CLIENTS + COMMAND_ONES + CONFIGS,
    [
        Command::new("function|flush", -2, function::flush)
            .flags("write noscript", "@write @slow @scripting")
            .tips("request_policy:all_shards response_policy:all_succeeded")
            .about("scripting", "Forgets all functions, of which there are none")
            .since("7.0.0", "O(1)")
            .syntax("?async(ASYNC|SYNC)"),
        Command::new("function|help", 2, help::function)
            .flags("loading stale", "@slow @scripting")
            .about("scripting", "Lists the subcommands")
            .since("7.0.0", "O(1)"),
        Command::new("function|list", -2, function::list)
            .flags("noscript", "@slow @scripting")
            .tips("nondeterministic_output_order")
            .about("scripting", "Lists all functions, of which there are none")
            .since("7.0.0", "O(1)")
            .syntax("?LIBRARYNAME=library-name-pattern:string ?WITHCODE"),
    ],
);
