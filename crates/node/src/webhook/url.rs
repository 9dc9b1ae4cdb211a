//! The address of a webhook.

use hyper::Uri;
use std::fmt;
use std::str::FromStr;

/// `http://host[:port]/path?query`. Only its host is ever shown: the rest may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl {
    pub(super) host: String,
    pub(super) port: u16,
    /// Host and port as they were written.
    pub(super) authority: String,
    /// Path and query.
    pub(super) target: String,
}

/// Why a text is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookUrlError {
    #[error("it is no address; write one such as http://127.0.0.1:9000/tally")]
    Unreadable,
    #[error("Tally has no TLS; post to a proxy or a receiver on this machine or a private network, with http://")]
    Tls,
    #[error("it begins with {0}://, and only http:// can be posted to")]
    Scheme(String),
    #[error("it has a user or a password, which are not sent; sign messages with --webhook-secret-file instead")]
    User,
}

impl FromStr for WebhookUrl {
    type Err = WebhookUrlError;

    fn from_str(text: &str) -> Result<WebhookUrl, WebhookUrlError> {
        let uri: Uri = text.parse().map_err(|_| WebhookUrlError::Unreadable)?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(WebhookUrlError::Tls),
            Some(other) => return Err(WebhookUrlError::Scheme(other.to_owned())),
            None => return Err(WebhookUrlError::Unreadable),
        }
        let authority = uri.authority().filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or(WebhookUrlError::Unreadable)?;
        if authority.as_str().contains('@') {
            return Err(WebhookUrlError::User);
        }
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        Ok(WebhookUrl {
            host: authority.host().trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: authority.port_u16().unwrap_or(80),
            authority: authority.as_str().to_owned(),
            target: target.to_owned(),
        })
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_apart_and_shown_without_its_path() {
        let parts = |text: &str| {
            let url: WebhookUrl = text.parse().unwrap();
            (url.to_string(), url.host, url.port, url.target)
        };
        let owned = |shown: &str, host: &str, port, target: &str| (shown.into(), host.into(), port, target.into());
        assert_eq!(
            parts("http://hooks.internal/T1?key=x"),
            owned("http://hooks.internal", "hooks.internal", 80, "/T1?key=x")
        );
        assert_eq!(parts("http://[::1]:9000"), owned("http://[::1]:9000", "::1", 9000, "/"));
    }

    #[test]
    fn what_cannot_be_posted_to_is_refused_in_words() {
        let refused = |text: &str| text.parse::<WebhookUrl>().unwrap_err();
        assert_eq!(refused("https://hooks.example.com/x"), WebhookUrlError::Tls);
        assert_eq!(refused("ftp://host/x"), WebhookUrlError::Scheme("ftp".to_owned()));
        assert_eq!(refused("http://me:secret@host/x"), WebhookUrlError::User);
        for text in ["", "/x", "host", "http://", "http://a b/"] {
            assert_eq!(refused(text), WebhookUrlError::Unreadable, "{text:?}");
        }
    }
}
