/** The library that draws charts, in a file of its own that is loaded when it is needed. */
import Plot from 'uplot';
import 'uplot/dist/uPlot.min.css';

export { Plot };
