//! The address of a webhook.

use reqwest::Url;
use std::fmt;
use std::str::FromStr;

/// `https://host[:port]/path?query`, or the same with `http`. Only its host is ever shown: the rest may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl(Url);

/// Why a text is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookUrlError {
    #[error("it is no address; write one such as https://hooks.example.com/tally")]
    Unreadable,
    #[error("it begins with {0}://, and only https:// and http:// can be posted to")]
    Scheme(String),
    #[error("it has a user or a password, which are not sent; sign messages with --webhook-secret-file instead")]
    User,
}

impl WebhookUrl {
    /// All of it, to post to.
    pub(super) fn whole(&self) -> Url {
        self.0.clone()
    }
}

impl FromStr for WebhookUrl {
    type Err = WebhookUrlError;

    fn from_str(text: &str) -> Result<WebhookUrl, WebhookUrlError> {
        let url = Url::parse(text).map_err(|_| WebhookUrlError::Unreadable)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(WebhookUrlError::Scheme(url.scheme().to_owned()));
        }
        match url.username().is_empty() && url.password().is_none() {
            true => Ok(WebhookUrl(url)),
            false => Err(WebhookUrlError::User),
        }
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.origin().ascii_serialization())
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
    fn an_address_is_shown_without_its_path() {
        let shown = |text: &str| text.parse::<WebhookUrl>().unwrap().to_string();
        assert_eq!(shown("http://hooks.internal/T1?key=x"), "http://hooks.internal");
        assert_eq!(shown("https://hooks.example.com:8443/T1"), "https://hooks.example.com:8443");
        assert_eq!(shown("http://[::1]:9000"), "http://[::1]:9000");
    }

    #[test]
    fn what_cannot_be_posted_to_is_refused_in_words() {
        let refused = |text: &str| text.parse::<WebhookUrl>().unwrap_err();
        assert_eq!(refused("ftp://host/x"), WebhookUrlError::Scheme("ftp".to_owned()));
        assert_eq!(refused("http://me:secret@host/x"), WebhookUrlError::User);
        for text in ["", "/x", "host", "http://", "http://a b/"] {
            assert_eq!(refused(text), WebhookUrlError::Unreadable, "{text:?}");
        }
    }
}
