import { expect, test } from 'vitest';
import { EventParser } from './stream';

test('events come out whole however their text was cut', () => {
  const text = ': subscribed\n\nevent: value\ndata: {"id":"a","value":1}\n\nid: 1-0-5\nevent: value\ndata: {"id":"b",\ndata: "value":2}\r\n\r\n: \n\ndata: x\n\n';
  const expected = [
    { name: 'value', data: '{"id":"a","value":1}' },
    { name: 'value', data: '{"id":"b",\n"value":2}' },
    { name: 'message', data: 'x' },
  ];
  expect(new EventParser().push(text)).toEqual(expected);
  const parser = new EventParser();
  expect([...text].flatMap((piece) => parser.push(piece))).toEqual(expected);
});

test('what has not ended is not told', () => {
  const parser = new EventParser();
  expect(parser.push('event: value\ndata: 1\n')).toEqual([]);
  expect(parser.push('\n')).toEqual([{ name: 'value', data: '1' }]);
});
