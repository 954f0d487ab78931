C     SNOMUX reconstructs: of the formatted hits on unit 11 it finds how many
C     planes each track passed, and fills a histogram and the mean slopes.
      PROGRAM SNOMUX
      CHARACTER*80 LINE
      INTEGER IOS, NEV, ITR, IPL, LAST, N, BINS(10), K
      REAL X, Y, P, X1, Y1
      DOUBLE PRECISION SLOPE, SUM
      DATA BINS / 10 * 0 /
      OPEN (11, FILE = 'fort.11', STATUS = 'OLD', FORM = 'FORMATTED')
      NEV = 0
      LAST = 0
      N = 0
      SUM = 0.0D0
   10 READ (11, '(A)', IOSTAT = IOS) LINE
      IF (IOS .NE. 0 .OR. LINE(1:5) .EQ. 'EVENT') THEN
         IF (LAST .GT. 0) BINS(LAST) = BINS(LAST) + 1
         LAST = 0
         IF (IOS .NE. 0) GO TO 20
         NEV = NEV + 1
         GO TO 10
      END IF
      READ (LINE, '(2I4, 3F9.3)') ITR, IPL, X, Y, P
      IF (IPL .EQ. 1) THEN
         IF (LAST .GT. 0) BINS(LAST) = BINS(LAST) + 1
         X1 = X
         Y1 = Y
      ELSE IF (IPL .EQ. 2) THEN
         SLOPE = SQRT(DBLE(X - X1)**2 + DBLE(Y - Y1)**2) / 10.0D0
         SUM = SUM + SLOPE * P
         N = N + 1
      END IF
      LAST = IPL
      GO TO 10
   20 CLOSE (11)
      WRITE (*, '(I8, A)') NEV, ' events reconstructed'
      DO 30 K = 1, 10
         WRITE (*, '(A, I3, A, I8)') ' tracks through', K, ' planes:',
     +      BINS(K)
   30 CONTINUE
      WRITE (*, '(A, F9.5)') ' mean transverse momentum', SUM / N
      END
