//! Answers on their way out: what waits for a client to take it is charged to the budget of all clients.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tally_core::limits::HTTP_ANSWER_BYTES;

use crate::frontend::budget::{Budget, Charge};
use crate::frontend::http::words::problem::Problem;

/// Charges an answer if it is large; if there is no room for it, the answer is to come back.
pub fn charged(answer: Response, budget: &Arc<Budget>) -> Response {
    // What has no known size is made while it is taken, and charges for itself.
    let bytes = answer.body().size_hint().exact().unwrap_or(0) as usize;
    if bytes <= HTTP_ANSWER_BYTES {
        return answer;
    }
    let mut charge = Charge::new(budget);
    match charge.set(bytes) {
        Ok(()) => answer.map(|body| Body::new(Charged { body, piece: Bytes::new(), charge })),
        Err(full) => Problem::from(full).into_response(),
    }
}

/// A large answer in pieces, so that what its client does not take stays here and not in the buffers of the connection.
struct Charged {
    body: Body,
    /// What has come out of the body and was not handed on.
    piece: Bytes,
    charge: Charge,
}

impl HttpBody for Charged {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.piece.is_empty() {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.piece = data,
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let bytes = self.piece.len().min(HTTP_ANSWER_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.piece.split_to(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.piece.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let exact = self.body.size_hint().exact().expect("only a body of known size is charged");
        SizeHint::with_exact(exact + self.piece.len() as u64)
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        self.charge.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[test]
    fn a_large_answer_is_charged_until_it_is_taken_and_comes_in_pieces() {
        let text: Vec<u8> = (0..300_000_u32).map(|n| n as u8).collect();
        let budget = Budget::new(1 << 20);
        let answer = charged(text.clone().into_response(), &budget);
        assert_eq!(budget.held_bytes(), text.len());
        let mut body = answer.into_body();
        let mut taken = Vec::new();
        while let Some(frame) = pollster::block_on(body.frame()) {
            let data = frame.unwrap().into_data().unwrap();
            assert!(data.len() <= HTTP_ANSWER_BYTES);
            taken.extend_from_slice(&data);
            assert_eq!(body.size_hint().exact(), Some((text.len() - taken.len()) as u64));
        }
        assert_eq!(taken, text);
        drop(body);
        assert_eq!(budget.held_bytes(), 0);
    }

    #[test]
    fn an_answer_without_room_is_to_come_back() {
        let budget = Budget::new(1 << 20);
        let mut others = Charge::new(&budget);
        others.set(700_000).unwrap();
        assert_eq!(charged(vec![b'x'; 300_000].into_response(), &budget).status(), 503);
        assert_eq!(charged(vec![b'x'; 3_000].into_response(), &budget).status(), 200);
    }
}
