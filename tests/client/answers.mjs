// Answers for `test_same_as_python.py`: lines of JSON in and out, bytes in hexadecimal digits.

import { createInterface } from "node:readline";
import { decode, encode, Mirror, patched } from "../../simserver/players/page/door.js";

const bytes = (hex) => Uint8Array.from(Buffer.from(hex, "hex"));
const hex = (value) => Buffer.from(encode(value)).toString("hex");

const questions = {
  again: (data) => hex(decode(bytes(data))),
  patched: ([before, patch]) => hex(patched(decode(bytes(before)), decode(bytes(patch)))),
  mirror: (frames) => {
    const mirror = new Mirror();
    for (const frame of frames) mirror.take(decode(bytes(frame)));
    return [...mirror.entities.values()].map(({ name, owner, epoch, sub, tick, state }) => [name, owner, epoch, sub, tick, hex(state)]);
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { ask, of } = JSON.parse(line);
  let reply;
  try {
    reply = { answer: questions[ask](of) };
  } catch (error) {
    reply = { refused: String(error.message), expected: error instanceof Error };
  }
  process.stdout.write(`${JSON.stringify(reply)}\n`);
}
