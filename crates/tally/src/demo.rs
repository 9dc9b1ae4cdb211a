//! `tally demo`: a server in a temporary directory, with sample traffic and something to try.

mod traffic;

use crate::access::Door;
use crate::address;
use crate::failure::{Failure, Result};
use crate::logging::LogFormat;
use crate::serve::{self, say};
use crate::signals::Signals;
use clap::Args;
use std::net::SocketAddr;
use tally_core::limits::MEMORY_BYTES_MIN;
use tally_node::assemble::{Node, Options};
use traffic::Traffic;

const CONFIG: &str = include_str!("demo/counters.yaml");

/// Run a server with sample traffic, and print what to try
#[derive(Args)]
#[command(after_help = "\
Nothing is kept: the data is in a temporary directory that goes when the demo
ends.")]
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
    let signals = Signals::catch()?;
    print_what_to_try(&node);
    let traffic = node.http_addr().map(|address| Traffic::start(address, args.events)).transpose();
    let traffic = traffic.map_err(|error| Failure::new("the sample traffic could not be started").why(error))?;
    signals.wait();
    drop(traffic);
    serve::stop(node)
}

fn print_what_to_try(node: &Node) {
    say("Tally is running on sample traffic: videos are opened, viewed and closed.\n\nDeclared:\n");
    CONFIG.lines().for_each(|line| say(&format!("  {line}")));
    say("\nTry:\n");
    if let Some(http) = node.http_addr() {
        say(&format!("  http://{http}/ in a browser"));
        say(&format!("  curl 'http://{http}/v1/counters/views:v1'"));
        say(&format!("  curl 'http://{http}/v1/counters/views_by_country:*/aggregate'"));
        say(&format!(
            "  curl 'http://{http}/v1/counters/hello/increment' -H 'Content-Type: application/json' -d '{{\"delta\":5}}'"
        ));
    }
    if let Some(resp) = node.resp_addr() {
        say(&format!("  redis-cli -h {} -p {} INCR hello", resp.ip(), resp.port()));
    }
    say("\nCtrl-C ends it.");
    say("ready");
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally_core::counter::Declarations;

    #[test]
    fn the_sample_configuration_is_valid() {
        assert_eq!(Declarations::parse(CONFIG).unwrap().counters().len(), 3);
    }
}
