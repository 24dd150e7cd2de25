export default function run(input, ctx) {
  return input.text.split("\n").filter((line) => line.startsWith("- ")).length;
}
