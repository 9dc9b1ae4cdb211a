//! `tally demo`: a server in a temporary directory, a story of what is special about it, sample traffic and something to try.

mod live;
mod story;
mod teller;
mod traffic;

use crate::access::Door;
use crate::address;
use crate::failure::{Failure, Result};
use crate::http::HttpArgs;
use crate::logging::LogFormat;
use crate::serve::{self, say};
use crate::signals::{Signals, Stop};
use clap::Args;
use live::Live;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tally_core::limits::MEMORY_BYTES_MIN;
use tally_node::assemble::{Node, Options};
use traffic::Traffic;

const CONFIG: &str = include_str!("demo/counters.yaml");
const COUNTRIES: [&str; 5] = ["DE", "US", "BR", "IN", "JP"];
const DEVICES: [&str; 3] = ["tv", "phone", "web"];

/// Show what Tally does, on a server with sample traffic, and print what to try
#[derive(Args)]
#[command(after_help = "\
Views with retries, likes and unlikes, impressions with a duplicate and a
conflict, a late event, a correction and roll-ups are sent to the server, and
what it answers is printed. Then sample traffic goes on.

Nothing is kept: the data is in a temporary directory that goes when the demo
ends. TALLY_LOG=info shows what the server logs, too.")]
pub struct DemoArgs {
    /// Where to listen for HTTP
    #[arg(long, value_name = "ADDR", default_value = serve::HTTP, value_parser = address::listening)]
    http: SocketAddr,
    /// Where to listen for the Redis protocol
    #[arg(long, value_name = "ADDR", default_value = serve::RESP, value_parser = address::listening)]
    resp: SocketAddr,
    /// Serve other machines: there is neither a token nor a password here
    #[arg(long)]
    insecure: bool,
    /// End the sample traffic after this many events; the server goes on
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    events: u64,
    /// How log lines are written
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t, env = "TALLY_LOG_FORMAT")]
    pub log_format: LogFormat,
}

pub fn run(args: DemoArgs) -> Result<()> {
    Door::Http.check(args.http, false, args.insecure)?;
    Door::Resp.check(args.resp, false, args.insecure)?;
    let directory = tempfile::Builder::new()
        .prefix("tally-demo-")
        .tempdir()
        .map_err(|error| Failure::new("no temporary directory could be made").why(error))?;
    let options = Options {
        http: Some(args.http),
        resp: Some(args.resp),
        config: Some(CONFIG.to_owned()),
        memory_bytes: MEMORY_BYTES_MIN,
        ..Options::new(directory.path())
    };
    let node = serve::start(options, None)?;
    let stop = Signals::catch()?.into_stop()?;
    let shown = show(&node, args.events, &stop).map_err(own_server);
    let stopped = serve::stop(node);
    shown.and(stopped)
}

/// All there is to see, until it is time to stop.
fn show(node: &Node, events_max: u64, stop: &Stop) -> Result<()> {
    let http = reachable(node.http_addr().expect("the demo listens for HTTP"));
    let resp = reachable(node.resp_addr().expect("the demo listens for the Redis protocol"));
    let server = HttpArgs::open(http);
    say_what_is_declared(&server)?;
    story::tell(&server, stop)?;
    if stop.is_asked() {
        return Ok(());
    }
    say_what_to_try(http, resp);
    go_on(&server, events_max, stop);
    Ok(())
}

/// Nobody can be asked to start another server, or to name one.
fn own_server(failure: Failure) -> Failure {
    failure.remedy("Run it with TALLY_LOG=info to see what its server says about it.")
}

/// Where a client on this machine finds what listens on all addresses of it.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::from((Ipv6Addr::LOCALHOST, address.port())),
        _ => address,
    }
}

fn say_what_is_declared(server: &HttpArgs) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    say(&format!("Tally {version} is running in a temporary directory, and counts what is declared there:\n"));
    let declared = server.get("/v1/config", &[("format", Some("yaml"))])?;
    declared.body.lines().for_each(|line| say(&format!("  {line}")));
    say("\nBelow, → is what this demo sends it over HTTP, and ← is what it answers.");
    Ok(())
}

fn say_what_to_try(http: SocketAddr, resp: SocketAddr) {
    say(&format!("\nThe page, live: http://{http}/\n\nTry:\n"));
    say(&format!("  curl http://{http}/v1/counters/views:v1"));
    say(&format!("  curl 'http://{http}/v1/counters/views/series?step=1m&by=country'"));
    say(&format!("  curl http://{http}/v1/counters/views:trailer/explain"));
    say(&format!(
        "  curl http://{http}/v1/counters/hello/increment -H 'Content-Type: application/json' -d '{{\"delta\":5}}'"
    ));
    say(&format!("  redis-cli -h {} -p {} INCR hello", resp.ip(), resp.port()));
    say(&format!("  tally series views --step 1m --from -30m --server {http}"));
    say("\nSample traffic comes from now on, some of it sent twice. Ctrl-C ends the demo.");
    say("ready");
}

/// Sample traffic, and how it stands. If it fails that is told, and the server goes on.
fn go_on(server: &HttpArgs, events_max: u64, stop: &Stop) {
    if let Err(failure) = send_and_look(server, events_max, stop) {
        own_server(failure).tell();
        say("the sample traffic has ended; the server goes on");
    }
    stop.wait();
}

fn send_and_look(server: &HttpArgs, events_max: u64, stop: &Stop) -> Result<()> {
    let (mut traffic, mut live) = (Traffic::new(events_max), Live::start(server));
    while !traffic.is_over() {
        if stop.within(traffic::EVERY) {
            return Ok(());
        }
        traffic.send(server)?;
        live.look(traffic.sent)?;
    }
    live.ended(traffic.sent)?;
    // Others may count as well.
    while live.is_redrawn() && !stop.within(live::REDRAW_EVERY) {
        live.ended(traffic.sent)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally_core::counter::Declarations;

    #[test]
    fn the_sample_configuration_is_valid() {
        assert_eq!(Declarations::parse(CONFIG).unwrap().counters().len(), 3);
    }
    #[test]
    fn a_server_on_all_addresses_is_found_on_this_machine() {
        let reached = |text: &str| reachable(text.parse().unwrap()).to_string();
        assert_eq!(reached("0.0.0.0:7070"), "127.0.0.1:7070");
        assert_eq!(reached("[::]:7070"), "[::1]:7070");
        assert_eq!(reached("192.0.2.1:7070"), "192.0.2.1:7070");
    }
}
