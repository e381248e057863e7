/** Sizes as people read them. */

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** Bytes in a unit of which there are few: `8.1 MiB`. @param {number|bigint} bytes */
export function size(bytes) {
  let [number, unit] = [Number(bytes), 0];
  while (number >= 1024 && unit < UNITS.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return `${unit ? number.toFixed(1) : number} ${UNITS[unit]}`;
}
