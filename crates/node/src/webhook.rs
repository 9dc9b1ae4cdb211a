//! Webhooks: what somebody should look at is posted, as JSON, to the addresses that the node was started with.
//!
//! Each address has a worker and a bounded queue of its own (`webhook-1` and so on), so one that does not answer holds up nobody. A message
//! is tried again for a while and then let go of: whoever has to know for certain asks the API. Its id is the same each time, so that a
//! receiver can tell one that comes twice.

mod post;
mod url;

pub use url::{WebhookUrl, WebhookUrlError};

use crate::clock::rfc3339;
use crate::engine::Engine;
use crate::metrics::Metrics;
use crate::worker::{Context, Next, Retry, Spec, Wake, Work, WorkFailure};
use bytes::Bytes;
use flume::{Receiver, Sender};
use post::{Signing, client, post};
use reqwest::Client;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tally_core::limits::{WEBHOOK_ATTEMPTS_MAX, WEBHOOK_MESSAGES_MAX, WEBHOOK_WAIT_MS_MAX};

const RETRY: Retry = Retry { first: Duration::from_secs(1), most: Duration::from_secs(60) };

/// Where messages go.
#[derive(Clone, Debug, Default)]
pub struct WebhookOptions {
    pub urls: Vec<WebhookUrl>,
    /// What messages are signed with.
    pub secret: Option<Arc<[u8]>>,
}

/// What is posted.
struct Message {
    id: String,
    body: Bytes,
}

/// Everybody who is told. Clones tell the same.
#[derive(Clone)]
pub struct Webhooks {
    queues: Arc<[(Sender<Arc<Message>>, Wake)]>,
    metrics: Arc<Metrics>,
    /// Another number each time.
    nonce: fn() -> io::Result<u64>,
}

impl Webhooks {
    /// Starts a worker for each address.
    pub fn start(engine: &Engine, options: WebhookOptions, nonce: fn() -> io::Result<u64>) -> io::Result<Webhooks> {
        let signing = options.secret.map(Signing::new);
        let mut queues = Vec::new();
        for (n, url) in options.urls.into_iter().enumerate() {
            let (queue, messages) = flume::bounded(WEBHOOK_MESSAGES_MAX);
            let spec = Spec::new(format!("webhook-{}", n + 1), "tells a webhook what somebody should look at", RETRY);
            let spec = spec.waits_for("something to tell").networked();
            queues.push((queue, spec.wake.clone()));
            let (signing, metrics) = (signing.clone(), engine.metrics().clone());
            engine.workers().apart(spec, Delivery { url, signing, messages, client: None, pending: None, metrics })?;
        }
        Ok(Webhooks { queues: queues.into(), metrics: engine.metrics().clone(), nonce })
    }

    /// Tells everybody something of a kind, and waits for nobody. What there is no room for is let go of.
    pub fn tell(&self, kind: &str, now_ms: u64, about: impl FnOnce() -> Value) {
        if self.queues.is_empty() {
            return;
        }
        let id = match (self.nonce)() {
            Ok(number) => format!("{number:016x}"),
            Err(error) => return tracing::warn!(%error, "a webhook is not told: there are no random numbers"),
        };
        let body = json!({"id": id, "kind": kind, "at": rfc3339(now_ms), kind: about()});
        let message = Arc::new(Message { id, body: body.to_string().into() });
        for (queue, wake) in self.queues.iter() {
            if queue.try_send(message.clone()).is_err() {
                self.metrics.webhooks.lapsed.inc();
            }
            wake.wake();
        }
    }
}

/// Brings messages to one address.
struct Delivery {
    url: WebhookUrl,
    signing: Option<Signing>,
    messages: Receiver<Arc<Message>>,
    /// There is none before the first message.
    client: Option<Client>,
    /// One that was not taken yet, and how often it was tried.
    pending: Option<(Arc<Message>, u32)>,
    metrics: Arc<Metrics>,
}

impl Delivery {
    /// It was not taken; after so many times it is let go of.
    fn failed(&mut self, message: Arc<Message>, attempts: u32, why: &str) -> WorkFailure {
        self.metrics.webhooks.failures.inc();
        if attempts < WEBHOOK_ATTEMPTS_MAX {
            self.pending = Some((message, attempts));
        } else {
            self.metrics.webhooks.lapsed.inc();
            tracing::warn!(message = message.id, to = %self.url, attempts, why, "a message to a webhook is let go of");
        }
        format!("{}: {why}", self.url).into()
    }
}

impl Work for Delivery {
    async fn work(&mut self, context: &Context) -> Result<Next, WorkFailure> {
        context.queue(self.messages.len() + usize::from(self.pending.is_some()));
        let client = match &self.client {
            Some(client) => client.clone(),
            None => self.client.insert(client()?).clone(),
        };
        let next = self.pending.take().or_else(|| Some((self.messages.try_recv().ok()?, 0)));
        let Some((message, tried)) = next else { return Ok(Next::WhenWoken) };
        let time = Duration::from_millis(WEBHOOK_WAIT_MS_MAX);
        let posted = post(&client, &self.url, &message.id, message.body.clone(), self.signing.as_ref());
        let answered = tokio::select! {
            biased;
            // Nobody waits for it.
            () = context.stopped() => return Ok(Next::WhenWoken),
            answered = context.clock().timeout(time, posted) => answered,
        };
        match answered.unwrap_or_else(|| Err(format!("no answer within {} s", time.as_secs()))) {
            Ok(()) => {
                self.metrics.webhooks.delivered.inc();
                Ok(Next::Again)
            }
            Err(why) => Err(self.failed(message, tried + 1, &why)),
        }
    }
}
