//! One message to one address. Only an answer of 200 to 299 means that it was taken; nobody is
//! followed elsewhere.

use super::url::WebhookUrl;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::Client;
use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use sha2::Sha256;
use std::error::Error;
use std::fmt::Write as _;
use std::sync::Arc;

/// What a receiver compares to tell one that comes twice.
const ID: &str = "tally-message-id";
const SIGNATURE: &str = "tally-signature";

/// Signs messages, so that a receiver knows who sent them.
#[derive(Clone)]
pub(super) struct Signing(Hmac<Sha256>);

impl Signing {
    pub fn new(secret: Arc<[u8]>) -> Signing {
        Signing(Hmac::new_from_slice(&secret).expect("a key of any length will do"))
    }

    /// `sha256=` and the HMAC of a body, in hexadecimal digits.
    fn of(&self, body: &[u8]) -> String {
        let mut mac = self.0.clone();
        mac.update(body);
        let mut text = "sha256=".to_owned();
        for byte in mac.finalize().into_bytes() {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

/// Asks receivers, each message over a connection of its own.
pub(super) fn client() -> Result<Client, String> {
    let client = Client::builder()
        .redirect(Policy::none())
        .pool_max_idle_per_host(0)
        .user_agent(concat!("tally/", env!("CARGO_PKG_VERSION")))
        .build();
    client.map_err(words)
}

/// Posts a message, and answers whether it was taken, or why not.
pub(super) async fn post(
    client: &Client,
    url: &WebhookUrl,
    id: &str,
    body: Bytes,
    signing: Option<&Signing>,
) -> Result<(), String> {
    let mut request = client.post(url.whole()).header(CONTENT_TYPE, "application/json").header(ID, id);
    if let Some(signing) = signing {
        request = request.header(SIGNATURE, signing.of(&body));
    }
    // What it says beside its status is not read.
    match request.body(body).send().await {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => Err(format!("it answered {}", answer.status())),
        Err(error) => Err(words(error)),
    }
}

/// With its causes, and without the address, which may be a secret.
fn words(error: reqwest::Error) -> String {
    let error = error.without_url();
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |words, cause| format!("{words}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_the_hmac_of_rfc_4231() {
        let signing = Signing::new(Arc::from(&b"Jefe"[..]));
        let known = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(signing.of(b"what do ya want for nothing?"), known);
        assert_eq!(signing.of(b"what do ya want for nothing?"), known, "and again");
    }
}
