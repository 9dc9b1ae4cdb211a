//! One message to one address, over a connection of its own. Only an answer of 200 to 299 means that it was taken; nobody is
//! followed elsewhere.

use super::url::WebhookUrl;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::Full;
use hyper::Request;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper_util::rt::TokioIo;
use sha2::Sha256;
use std::fmt::Write as _;
use std::sync::Arc;
use tokio::net::TcpStream;

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

/// Posts a message, and answers whether it was taken, or why not.
pub(super) async fn post(url: &WebhookUrl, id: &str, body: Bytes, signing: Option<&Signing>) -> Result<(), String> {
    let stream = TcpStream::connect((&*url.host, url.port)).await.map_err(|error| error.to_string())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let mut request = Request::post(&*url.target)
        .header(HOST, &*url.authority)
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("tally/", env!("CARGO_PKG_VERSION")))
        .header(ID, id);
    if let Some(signing) = signing {
        request = request.header(SIGNATURE, signing.of(&body));
    }
    let request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
    // What it says beside its status is not read: when the answer is dropped, the connection ends.
    let answer = async move { sender.send_request(request).await.map(|response| response.status()) };
    let (answer, _) = tokio::join!(answer, connection);
    match answer {
        Ok(status) if status.is_success() => Ok(()),
        Ok(status) => Err(format!("it answered {status}")),
        Err(error) => Err(error.to_string()),
    }
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
